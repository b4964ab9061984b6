"""Names, sizes, magic numbers and fixed layouts of a store's files; all integers big-endian.

Source: Apache RocketMQ 5.3.3 (``CommitLog``, ``MessageExtEncoder``, ``StoreCheckpoint``), compared
byte by byte with directories that it wrote.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import Final

# Directories and files of a store directory.
COMMITLOG_DIR: Final = "commitlog"
CONSUMEQUEUE_DIR: Final = "consumequeue"
CONSUMEQUEUE_EXT_DIR: Final = "consumequeue_ext"
BATCHCONSUMEQUEUE_DIR: Final = "batchconsumequeue"
INDEX_DIR: Final = "index"
CONFIG_DIR: Final = "config"
CHECKPOINT_FILE: Final = "checkpoint"
ABORT_FILE: Final = "abort"
ABORT_BACKUP_FILE: Final = "abort.bak"
LOCK_FILE: Final = "lock"

# Files unknown to RocketMQ are all in this folder.
OWN_DIR: Final = "lakelog"
STORE_FILE: Final = "store.json"
NEW_FILE: Final = "new"
"""Marks a store that is being created; removed once the log has its folder."""
STRATEGIES_FILE: Final = "strategies.json"
TOMBSTONES_FILE: Final = "tombstones.json"
"""Topics whose queues were removed, for the dispatcher that keeps queues."""
SETTINGS_FILE: Final = "lakelog.toml"
TMP_DIR: Final = "tmp"
REBUILD_DIR: Final = "rebuild"
"""Folder for new trees in the folder for unfinished files; the next owner removes it."""
QUARANTINE_DIR: Final = "quarantine"

SEGMENT_NAME_DIGITS: Final = 20
"""A segment is named by the decimal offset of its first byte, padded to this many digits."""

DEFAULT_SEGMENT_SIZE_BYTES: Final = 1 << 30

# Record magic numbers, as unsigned 32-bit values.
MAGIC_V1: Final = 0xDAA320A7
"""A record whose topic length takes one byte."""
MAGIC_V2: Final = 0xDAA320AB
"""A record whose topic length takes two bytes."""
MAGIC_BLANK: Final = 0xCBD43194
"""The record that fills the remainder of a segment."""

BLANK_MIN_BYTES: Final = 8
"""A full segment always ends with at least this many bytes of blank record."""
BLANK: Final = Struct(">iI")
"""``size i32 | magic u32``; the remaining bytes of the segment are undefined."""

# Positions of fixed fields of a record, in bytes from its start.
AT_SIZE: Final = 0
AT_MAGIC: Final = 4
AT_BODY_CRC: Final = 8
AT_QUEUE_ID: Final = 12
AT_QUEUE_OFFSET: Final = 20
AT_PHYSICAL_OFFSET: Final = 28
AT_SYS_FLAG: Final = 36
AT_BORN_HOST: Final = 48

HOST_V4_BYTES: Final = 8
HOST_V6_BYTES: Final = 20

PREFIX: Final = Struct(">iIIiiqqiq")
"""From the size to the born timestamp: 48 bytes."""
SUFFIX: Final = Struct(">iqi")
"""``reconsumeTimes | preparedTransactionOffset | bodyLength``: 16 bytes before the body."""
HEAD_V4: Final = Struct(">iIIiiqqiq8sq8siqi")
"""All fields before the body where both hosts are IPv4: 88 bytes."""

RECORD_MIN_BYTES: Final = 91
"""An IPv4 V1 record without body, topic and properties."""

MAX_TOPIC_V1_BYTES: Final = 127
MAX_TOPIC_BYTES: Final = 255
MAX_PROPERTIES_BYTES: Final = 32767

# The record checksum: a property that ends the record.
RECORD_CRC_NAME: Final = b"__CRC32#"
RECORD_CRC_BYTES: Final = 20
"""``__CRC32#`` 0x01, ten digits with the least significant first, 0x02."""

NAME_VALUE_SEPARATOR: Final = b"\x01"
PROPERTY_SEPARATOR: Final = b"\x02"

CHECKPOINT_BYTES: Final = 4096
CHECKPOINT: Final = Struct(">qqqqq")
"""``physicMsgTimestamp | logicsMsgTimestamp | indexMsgTimestamp | masterFlushedOffset |
confirmPhyOffset``; the rest of the file is zero."""

LOCK_CONTENT: Final = b"lock"


def segment_name(start_offset: int) -> str:
    """The file name of the segment that starts at ``start_offset`` bytes.

    >>> segment_name(1073741824)
    '00000000001073741824'
    """
    return f"{start_offset:0{SEGMENT_NAME_DIGITS}d}"


def is_segment_name(name: str) -> bool:
    """Whether ``name`` is a decimal offset of 20 digits."""
    return len(name) == SEGMENT_NAME_DIGITS and name.isascii() and name.isdigit()


# The bits of a record's ``sysFlag`` (RocketMQ's ``MessageSysFlag``).
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
