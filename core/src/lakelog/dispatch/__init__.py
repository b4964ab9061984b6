"""Dispatches runs of records to queues and index, and waits for that."""
