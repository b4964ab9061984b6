"""The slave's side: a replica receives the log of a master."""
