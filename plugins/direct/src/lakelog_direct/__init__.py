"""Two writers for lakelog that stage bytes in their own buffers: ``staged`` and ``direct``."""
