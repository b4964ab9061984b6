"""Compares a landed table with the log it landed from."""
