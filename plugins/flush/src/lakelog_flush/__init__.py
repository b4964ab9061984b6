"""Flush strategies for lakelog: group commit and timed."""
