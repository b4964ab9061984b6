"""Section ``[mmap]``."""

from __future__ import annotations

import attrs


@attrs.frozen
class MmapSettings:
    """What the writer ``mmap`` can be told.

    :ivar warm: whether every page of a step of a segment is touched before it is used: appends
        then meet no page fault, and each step takes as long as writing it
    :ivar lock_memory: whether a step of a segment is locked into memory (``mlock``) while it is
        written
    """

    warm: bool = False
    lock_memory: bool = False
