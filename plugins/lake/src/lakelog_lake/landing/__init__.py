"""Lands messages in tables, each exactly once: the table itself stores the position reached."""
