"""Dispatches runs of records to queues and index, and notifies waiters."""
