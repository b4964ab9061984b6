"""Handlers of requests, one class per group of request codes."""
