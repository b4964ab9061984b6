"""The commands ``lakelog dispatch``, ``export``, ``sql`` and ``lake``."""
