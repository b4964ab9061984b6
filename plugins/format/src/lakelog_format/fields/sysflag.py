"""The bits of a record's ``sysFlag`` (RocketMQ's ``MessageSysFlag``)."""

from __future__ import annotations

from enum import Enum
from typing import Final

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
PREPARED: Final = 0x4
COMMIT: Final = 0x8
ROLLBACK: Final = 0xC
TRANSACTION_MASK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80
COMPRESSION_MASK: Final = 0x700
COMPRESSION_SHIFT: Final = 8


class Transaction(Enum):
    """The role of a record in a transaction."""

    NONE = 0x0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC


def transaction(sys_flag: int) -> Transaction:
    """The transaction type in ``sys_flag``."""
    return Transaction(sys_flag & TRANSACTION_MASK)


def is_queued(sys_flag: int) -> bool:
    """Whether a record takes a queue offset: prepared and rollback records take none."""
    return not sys_flag & PREPARED
