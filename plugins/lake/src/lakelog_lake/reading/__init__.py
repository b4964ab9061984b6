"""What a query reads of a store: options, runs of the log for single tasks, and their rows."""
