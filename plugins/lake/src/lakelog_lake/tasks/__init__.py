"""The tasks of a pass, which convert ranges of the log to data files."""
