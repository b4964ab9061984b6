"""Keeps old segments of a store in a directory or at any fsspec URL, and serves them from there."""
