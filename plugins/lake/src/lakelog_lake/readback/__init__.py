"""Reads tables in which messages have landed."""
