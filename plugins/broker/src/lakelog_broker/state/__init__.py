"""Topics, groups, members and offsets of a running broker, shared by both protocols."""
