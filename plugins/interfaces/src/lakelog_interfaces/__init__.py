"""The interfaces that plugins of lakelog implement and use: hooks, Protocols, and errors."""
