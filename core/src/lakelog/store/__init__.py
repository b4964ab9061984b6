"""Opens a store: recovers its log, builds its parts, and manages its lifecycle."""
