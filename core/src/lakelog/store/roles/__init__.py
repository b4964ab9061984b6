"""What a store is to its process: owner, attached or reader, and the change at a take-over."""
