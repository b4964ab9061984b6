"""The roles of a store in a process: owner, attached or reader, and the take-over."""
