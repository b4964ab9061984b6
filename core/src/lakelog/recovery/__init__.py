"""Recovery: determines the content and the end of a log after a stop, and repairs the log.

:mod:`.examine` only reads; :mod:`.apply` makes all changes.
"""
