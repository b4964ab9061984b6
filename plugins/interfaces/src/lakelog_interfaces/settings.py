"""The store's own settings, which each strategy receives in its ``Context``."""

from __future__ import annotations

from mmap import PAGESIZE
from pathlib import Path
from typing import Literal

import attrs
from attrs import field, validators

from lakelog_format.fields.layout import COMMITLOG_DIR, DEFAULT_SEGMENT_SIZE_BYTES


def _pages(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value % PAGESIZE:
        raise ValueError(f"{attribute.name} must be a multiple of {PAGESIZE}, not {value}")


@attrs.frozen(kw_only=True)
class StoreSettings:
    """The settings of the core; sizes in bytes, durations in milliseconds.

    :ivar group: name of the group that may read and write new files, and attach; without it, new
        files get the permissions of ``lock``, and those of a new store are its user's alone
    :ivar commitlog_path: directory of the segments, if not ``commitlog/``; a relative path is
        relative to the store directory
    :ivar segment_size_bytes: length of every segment file (RocketMQ's ``mappedFileSizeCommitLog``)
    :ivar append: the append callback, by name
    :ivar writer: the writer, by name
    :ivar flush: the flush strategy, by name; ``auto`` is the best that is installed
    :ivar replicator: the replicator, by name, if any
    :ivar dispatchers: the dispatchers, in the order in which they receive each batch; ``auto`` is
        the consume queues, then the key index if one is installed; empty makes a bare log
    :ivar followers: the followers, by name
    :ivar cleaner: the cleaner, by name, if any
    :ivar disk_watcher: the disk-space watcher, by name, if any
    :ivar archive: the segment source, by name, that serves segments deleted from the log, if any
    :ivar accelerator: compiled code for work done for every message, by name; ``auto`` is the
        installed one, ``none`` is plain Python; files, results and errors are the same
    :ivar max_message_size_bytes: largest body; a record may be 64 KiB larger
    :ivar store_host: ``address:port`` in records and message ids
    :ivar queues_per_topic: number of queues among which a put without a queue id is distributed
    :ivar record_crc: whether records are written with the checksum property ``__CRC32#``
    :ivar require_record_crc: whether recovery treats a record without ``__CRC32#`` as damaged, for
        logs whose records all have one (RocketMQ's ``forceVerifyPropCRC``)
    :ivar light_queues: whether ``INNER_MULTI_DISPATCH`` feeds light queues
    :ivar max_light_queues: largest number of light queues
    :ivar os_page_cache_busy_timeout_ms: puts are refused while one append takes longer than this
    :ivar preallocate: whether the next segment and its blocks are allocated ahead of need
    :ivar allocation_step_bytes: disk blocks allocated at a time as the log grows, at first; later
        up to 16 times as many; the size of a segment allocates it all at once
    :ivar on_damage: how recovery treats whole records after damaged ones: ``skip`` keeps them and
        marks the damage, ``refuse`` does not open the store, ``truncate`` cuts the log at the
        damage, as RocketMQ does
    """

    group: str | None = None
    commitlog_path: Path | None = None
    segment_size_bytes: int = field(
        default=DEFAULT_SEGMENT_SIZE_BYTES, validator=validators.ge(4096)
    )
    append: str = "rocketmq"
    writer: str = "file"
    flush: str = "auto"
    replicator: str | None = None
    dispatchers: tuple[str, ...] = ("auto",)
    followers: tuple[str, ...] = ()
    cleaner: str | None = None
    disk_watcher: str | None = None
    archive: str | None = None
    accelerator: str = "auto"
    max_message_size_bytes: int = field(
        default=4 << 20, validator=[validators.ge(1), validators.le(1 << 30)]
    )
    store_host: str = "127.0.0.1:10911"
    queues_per_topic: int = field(default=4, validator=validators.ge(1))
    record_crc: bool = False
    require_record_crc: bool = False
    light_queues: bool = False
    max_light_queues: int = field(default=20_000, validator=validators.ge(0))
    os_page_cache_busy_timeout_ms: int = field(default=1_000, validator=validators.ge(0))
    preallocate: bool = True
    allocation_step_bytes: int = field(default=1 << 20, validator=[validators.ge(4096), _pages])
    on_damage: Literal["skip", "refuse", "truncate"] = "skip"

    def commitlog(self, path: Path) -> Path:
        """The directory of the segments of the store in ``path``."""
        return path / (self.commitlog_path or COMMITLOG_DIR)
