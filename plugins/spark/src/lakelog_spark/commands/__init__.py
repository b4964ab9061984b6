"""The command ``lakelog sql``."""
