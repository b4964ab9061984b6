"""Puts and openings: each store in its own process, with all promises from none to the disk's."""
