"""Two writers for lakelog that keep new bytes in memory of their own: staged, and O_DIRECT."""
