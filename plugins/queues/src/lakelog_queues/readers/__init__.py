"""Queues and index of a process without the services: built in memory, and waiting for more."""
