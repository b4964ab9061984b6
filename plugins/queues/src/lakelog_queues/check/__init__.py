"""Checks of queue files against the log."""
