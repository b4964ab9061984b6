"""Cleaners and a disk-space watcher for lakelog."""
