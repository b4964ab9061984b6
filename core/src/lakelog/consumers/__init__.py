"""Consumers: groups that commit how far they have read each queue."""
