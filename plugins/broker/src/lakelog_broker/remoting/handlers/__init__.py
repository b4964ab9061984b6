"""Requests by family; each class has a method per request code."""
