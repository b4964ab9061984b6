"""Queues and index of a process without the services: dispatched in memory, and waits for it."""
