"""The work of a pass: ranges of the log become data files."""
