"""Behind the log: runs of records to the dispatchers, and waiting for them."""
