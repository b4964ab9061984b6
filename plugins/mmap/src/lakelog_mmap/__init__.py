"""A writer for lakelog that does everything through a map of the segment."""
