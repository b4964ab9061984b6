"""Parsers of message bodies: typed columns instead of bytes."""
