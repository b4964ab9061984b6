"""The slave's role: a replica receives the log of a master."""
