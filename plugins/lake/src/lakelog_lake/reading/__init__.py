"""Reads of a store by queries: options, ranges of the log for single tasks, and their rows."""
