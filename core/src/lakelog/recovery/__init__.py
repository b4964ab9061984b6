"""Recovery: finds out what a log holds after any stop, and puts right what can be.

:mod:`.examine` only reads; :mod:`.mend` is the one place that acts on what it found.
"""
