"""An open store: put together, opened, recovered, and handed to its user."""
