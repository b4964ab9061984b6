"""Section ``[mmap]``."""

from __future__ import annotations

import attrs


@attrs.frozen
class MmapSettings:
    """Settings of the writer ``mmap``.

    :ivar warm: whether every page of an allocation step is touched before use: appends then cause
        no page fault, but each step takes as long as writing it
    :ivar lock_memory: whether an allocation step is locked into memory (``mlock``) while it is
        written
    """

    warm: bool = False
    lock_memory: bool = False
