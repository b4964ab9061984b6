"""How the processes that have a store open share it: the page, its locks, and who serves."""
