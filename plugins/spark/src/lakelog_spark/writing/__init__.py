"""Writes rows into a store exactly once: tasks stage them, and the driver appends them."""
