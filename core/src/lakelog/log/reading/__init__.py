"""Reading the log: by offset, in order, and past damage."""
