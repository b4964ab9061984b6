"""The operating system's files, and duties that concern one file or folder."""
