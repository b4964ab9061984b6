"""Maps RocketMQ's settings to lakelog's: a table, and notes on those without a counterpart.

Names are those of ``MessageStoreConfig`` and ``BrokerConfig`` of 5.3.3, and older spellings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import attrs

T = TypeVar("T")

QUEUE_ENTRY_BYTES: Final = 20
BATCH_QUEUE_ENTRY_BYTES: Final = 46


@attrs.frozen
class Rule:
    """The translation of one RocketMQ setting.

    :ivar target: lakelog's dotted key
    :ivar convert: converts its text, or returns ``None`` if the text sets nothing; raises
        ``ValueError``
    """

    target: str
    convert: Callable[[str], object]


def whole(text: str) -> int:
    """Convert ``text`` to an integer; raises ``ValueError``."""
    try:
        return int(text.strip())
    except ValueError:
        raise ValueError(f"expected a whole number, got {text!r}") from None


def truth(text: str) -> bool:
    """Convert ``text`` to a truth value; raises ``ValueError`` unless it is true or false.

    RocketMQ reads everything but ``true`` as false.
    """
    return choice({"true": True, "false": False})(text.strip().lower())


def choice(values: Mapping[str, T]) -> Callable[[str], T]:
    """Return a converter that raises ``ValueError`` for all but the given words."""

    def convert(text: str) -> T:
        if text.strip() not in values:
            raise ValueError(f"expected one of {', '.join(values)}, got {text!r}")
        return values[text.strip()]

    return convert


def units(unit_bytes: int) -> Callable[[str], int]:
    """Return a converter of a size in bytes to a count of units, rounded up as by RocketMQ."""
    return lambda text: -(-whole(text) // unit_bytes)


def padded(unit_bytes: int) -> Callable[[str], int]:
    """Return a converter that rounds a size in bytes up to whole units, in bytes."""
    return lambda text: units(unit_bytes)(text) * unit_bytes


def word(text: str) -> str:
    """``text`` without surrounding blanks."""
    return text.strip()


TABLE: Final[Mapping[str, Rule]] = {
    # the log
    "mappedFileSizeCommitLog": Rule("segment_size_bytes", whole),
    "mapedFileSizeCommitLog": Rule("segment_size_bytes", whole),
    "maxMessageSize": Rule("max_message_size_bytes", whole),
    "enabledAppendPropCRC": Rule("record_crc", truth),
    "forceVerifyPropCRC": Rule("require_record_crc", truth),
    "maxLmqConsumeQueueNum": Rule("max_light_queues", whole),
    "osPageCacheBusyTimeOutMills": Rule("os_page_cache_busy_timeout_ms", whole),
    "defaultTopicQueueNums": Rule("queues_per_topic", whole),
    # writers
    "transientStorePoolEnable": Rule("writer", choice({"true": "staged", "false": None})),
    "transientStorePoolSize": Rule("staged.pool_size", whole),
    "commitIntervalCommitLog": Rule("staged.commit_interval_ms", whole),
    "commitCommitLogLeastPages": Rule("staged.commit_least_pages", whole),
    "commitCommitLogThoroughInterval": Rule("staged.commit_thorough_interval_ms", whole),
    "warmMapedFileEnable": Rule("mmap.warm", truth),
    # flush strategies
    "flushDiskType": Rule("flush", choice({"SYNC_FLUSH": "group-commit", "ASYNC_FLUSH": "timed"})),
    "syncFlushTimeout": Rule("group-commit.sync_flush_timeout_ms", whole),
    "flushIntervalCommitLog": Rule("timed.flush_interval_ms", whole),
    "flushCommitLogLeastPages": Rule("timed.flush_least_pages", whole),
    "flushCommitLogThoroughInterval": Rule("timed.flush_thorough_interval_ms", whole),
    "flushCommitLogTimed": Rule("timed.fixed_rate", truth),
    # queues and index
    "mappedFileSizeConsumeQueue": Rule("consume-queue.file_entries", units(QUEUE_ENTRY_BYTES)),
    "mapedFileSizeConsumeQueue": Rule("consume-queue.file_entries", units(QUEUE_ENTRY_BYTES)),
    "enableConsumeQueueExt": Rule("consume-queue.ext_enabled", truth),
    "mappedFileSizeConsumeQueueExt": Rule("consume-queue.ext_file_size_bytes", whole),
    "mapperFileSizeBatchConsumeQueue": Rule(
        "consume-queue.batch_file_size_bytes", padded(BATCH_QUEUE_ENTRY_BYTES)
    ),
    "flushIntervalConsumeQueue": Rule("consume-queue.flush_interval_ms", whole),
    "flushConsumeQueueLeastPages": Rule("consume-queue.flush_least_pages", whole),
    "flushConsumeQueueThoroughInterval": Rule("consume-queue.flush_thorough_interval_ms", whole),
    "maxHashSlotNum": Rule("hash-index.slots", whole),
    "maxIndexNum": Rule("hash-index.entries", whole),
    # disk space
    "fileReservedTime": Rule("retention.file_reserved_hours", whole),
    "deleteWhen": Rule("retention.delete_when", word),
    "deleteFileBatchMax": Rule("retention.delete_files_batch_max", whole),
    "deleteCommitLogFilesInterval": Rule("retention.delete_interval_ms", whole),
    "destroyMapedFileIntervalForcibly": Rule("retention.destroy_forcibly_after_ms", whole),
    "cleanFileForciblyEnable": Rule("retention.clean_forcibly", truth),
}

NOTES: Final[Mapping[str, tuple[str, str]]] = {
    "checkCRCOnRecover": ("true", "recovery always checks every checksum"),
    "redeleteHangedFileInterval": ("120000", "deletion of a segment is retried every round"),
    "replicasPerDiskPartition": ("1", "the whole disk counts, including other users of it"),
    "messageIndexEnable": ("true", "name the dispatchers to use in `dispatchers`"),
}
"""Settings without a counterpart: the value that is not reported, and a note for other values."""
