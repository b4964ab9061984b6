"""Messages land in a table, each exactly once: the table itself says how far they have come."""
