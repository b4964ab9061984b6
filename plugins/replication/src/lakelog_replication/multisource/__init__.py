"""Copies of several masters, each in a store of its own below one folder."""
