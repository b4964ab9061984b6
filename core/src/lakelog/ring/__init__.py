"""Shared memory in which one process hands encoded records to the owner of a store.

A ring has one producer and one consumer. :mod:`lakelog.ring.writing` is the producer's end,
:mod:`lakelog.ring.reading` the owner's; ``core/docs/format/ring.md`` has the bytes. Sockets, and
what else it takes to hand the memory over, are in :mod:`lakelog.attach`.
"""
