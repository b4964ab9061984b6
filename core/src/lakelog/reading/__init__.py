"""Finding messages: by queue and offset, by time, by key, and as they arrive."""
