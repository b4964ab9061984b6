"""A writer for lakelog that writes only through a memory map of the segment."""
