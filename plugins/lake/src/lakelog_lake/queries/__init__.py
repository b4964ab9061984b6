"""SQL over the messages of a store, in this process."""
