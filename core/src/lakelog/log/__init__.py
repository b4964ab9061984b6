"""The log: appending, durability, and segments."""
