"""Three writers: through maps of the segment files, through staged buffers, past the page cache."""
