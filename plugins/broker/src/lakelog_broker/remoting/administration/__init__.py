"""Requests of administration tools (mqadmin, dashboards) and of slaves."""
