"""What a plugin of lakelog is written against: hooks, Protocols of strategies, and errors."""
