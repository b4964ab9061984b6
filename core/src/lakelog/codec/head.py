"""The first fields of one record, for those who need no more of it."""

from __future__ import annotations

from struct import Struct
from typing import Final

from lakelog.format.hosts import host_bytes
from lakelog.format.layout import (
    AT_BORN_HOST,
    HOST_V6_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    PREFIX,
    RECORD_MIN_BYTES,
)
from lakelog.format.sysflag import BORN_HOST_V6

_LONG: Final = Struct(">q")
HEAD_MOST_BYTES: Final = AT_BORN_HOST + HOST_V6_BYTES + _LONG.size
"""Bytes up to the end of the store time, where hosts are long."""


def head_store_time(head: memoryview, offset: int, size: int) -> int | None:
    """The store time, in ms since 1970, in the first bytes of a record.

    ``None`` if they do not say that a record of ``size`` bytes stands at ``offset``.
    """
    if size < RECORD_MIN_BYTES or len(head) < PREFIX.size:
        return None
    said, magic, _, _, _, _, place, sys_flag, _ = PREFIX.unpack_from(head)
    if (said, place) != (size, offset) or magic not in (MAGIC_V1, MAGIC_V2):
        return None
    at = AT_BORN_HOST + host_bytes(bool(sys_flag & BORN_HOST_V6))
    return int(_LONG.unpack_from(head, at)[0]) if len(head) >= at + _LONG.size else None
