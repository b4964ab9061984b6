"""Recovery: determines what a log holds after a stop, and repairs what can be repaired.

:mod:`.examine` only reads; :mod:`.apply` makes all changes.
"""
