"""The commands ``lakelog dispatch``, ``export`` and ``lake``."""
