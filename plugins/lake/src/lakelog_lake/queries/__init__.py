"""SQL over the messages of a store, run in this process."""
