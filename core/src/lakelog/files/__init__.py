"""Access to the operating system's files, and the files of a store."""
