"""Consumers: groups that remember how far they have read each queue."""
