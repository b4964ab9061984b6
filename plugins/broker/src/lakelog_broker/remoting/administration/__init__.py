"""Requests of tools: mqadmin, dashboards, and slaves."""
