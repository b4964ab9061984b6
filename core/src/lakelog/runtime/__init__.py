"""Threads, forks, signals and locks of the Python runtime."""
