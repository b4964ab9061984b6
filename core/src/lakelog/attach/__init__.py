"""Producers in other processes: a socket beside the store's files, and shared memory behind it.

``hub`` is the owner's side, ``producer`` the other one; ``place``, ``peer``, ``packets`` and
``hello`` are what both say to each other before the first message, and :mod:`lakelog.ring` is how
messages go from one to the other. core/docs/format/ring.md says it for other languages.
"""
