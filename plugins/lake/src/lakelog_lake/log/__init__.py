"""Access to a log for landing and reading: its durable end, and the records wanted."""
