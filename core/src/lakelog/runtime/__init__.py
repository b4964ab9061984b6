"""Threads, forks, signals and locks of Python, as a store uses them."""
