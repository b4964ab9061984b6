"""Checks a store against its log, rebuilds queues and index from it, and repairs the log."""
