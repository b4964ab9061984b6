"""Compares a table with the log that landed in it."""
