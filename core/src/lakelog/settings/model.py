"""The store's own settings; every plugin has a class of its own for its section."""

from __future__ import annotations

from mmap import PAGESIZE
from pathlib import Path
from typing import Literal

import attrs
from attrs import field, validators

from lakelog.format.layout import COMMITLOG_DIR, DEFAULT_SEGMENT_SIZE_BYTES


def _pages(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value % PAGESIZE:
        raise ValueError(f"{attribute.name} must be a multiple of {PAGESIZE}, not {value}")


@attrs.frozen(kw_only=True)
class StoreSettings:
    """What the core needs to know; sizes in bytes, durations in milliseconds.

    :ivar group: the group, by name, that may read and write the files that are made, and attach;
        without it, new files have the rights of ``lock``, in a new store those of its user alone
    :ivar commitlog_path: where segments stand, if not in ``commitlog/`` of the store directory,
        from which a relative name starts
    :ivar segment_size_bytes: length of every segment file (RocketMQ's ``mappedFileSizeCommitLog``)
    :ivar append: the append callback, by name
    :ivar writer: the writer, by name
    :ivar flush: the flush strategy, by name; ``auto`` is the best that is installed
    :ivar replicator: the replicator, by name, if any
    :ivar dispatchers: the dispatchers, in the order in which they see each batch; ``auto`` is the
        consume queues, then the key index if one is installed; none makes a bare log
    :ivar followers: the followers, by name
    :ivar cleaner: the cleaner, by name, if any
    :ivar disk_watcher: the disk-space watcher, by name, if any
    :ivar archive: the segment source, by name, that has what was deleted from the log, if any
    :ivar accelerator: compiled code for what is done for every message, by name; ``auto`` is what
        is installed, ``none`` is plain Python; files, results and errors are the same
    :ivar max_message_size_bytes: largest body; a record may be 64 KiB larger
    :ivar store_host: ``address:port`` in records and message ids
    :ivar queues_per_topic: how many queues a put chooses from when it names none
    :ivar record_crc: whether records are written with the checksum property ``__CRC32#``
    :ivar require_record_crc: whether a recovery takes a record without ``__CRC32#`` for damaged,
        for logs of which every record was written with it (RocketMQ's ``forceVerifyPropCRC``)
    :ivar light_queues: whether ``INNER_MULTI_DISPATCH`` feeds light queues
    :ivar max_light_queues: how many light queues there may be
    :ivar os_page_cache_busy_timeout_ms: puts are refused while one append takes longer than this
    :ivar preallocate: whether the next segment, and blocks for it, are made ahead of need
    :ivar allocation_step_bytes: a segment gets blocks of the disk as the log grows, at first so
        many bytes at a time, later up to 16 times as many; a segment's size allocates all at once
    :ivar on_damage: what a recovery does about whole records behind damaged ones: ``skip`` keeps
        them and marks the damage, ``refuse`` does not open the store, ``truncate`` cuts the log at
        the damage, as RocketMQ does
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
        """Where the segments of the store directory ``path`` stand."""
        return path / (self.commitlog_path or COMMITLOG_DIR)


@attrs.frozen(kw_only=True)
class MaintenanceSettings:
    """The section ``maintenance``: when a store keeps house, and what followers hold.

    :ivar first_round_ms: how long after opening the cleaner and the disk-space watcher are asked
        for the first time
    :ivar interval_ms: how long after each round the next one begins
    :ivar pin_expires_after_ms: a follower's pin that was not renewed for so long holds nothing any
        more; empty is never
    :ivar override_pins: whether segments go that a follower still needs; otherwise they stay, and
        puts are refused once the disk is full
    """

    first_round_ms: int = field(default=60_000, validator=validators.ge(0))
    interval_ms: int = field(default=10_000, validator=validators.ge(1))
    pin_expires_after_ms: int | None = field(
        default=None, validator=validators.optional(validators.ge(1))
    )
    override_pins: bool = False


@attrs.frozen(kw_only=True)
class AttachSettings:
    """The section ``attach``: several processes that append to one store.

    :ivar listen: whether other processes may write beside this one; ``false`` is mode ``exclusive``
    :ivar take_over: whether this process takes the services over, if nobody has them any more
    :ivar reconnect_timeout_ms: how long another process may take to open or close the store
    :ivar on_fork: what becomes of an open store in a forked child: ``refuse`` makes it unusable
        there, ``attach`` opens it anew at its next use
    """

    listen: bool = True
    take_over: bool = True
    reconnect_timeout_ms: int = field(default=30_000, validator=validators.ge(0))
    on_fork: Literal["refuse", "attach"] = "refuse"


@attrs.frozen(kw_only=True)
class ServicesSettings:
    """The section ``services``: where an owner's services run.

    :ivar dispatch: queues and index are built by a ``thread`` of the owner, or by a ``process`` of
        their own
    """

    dispatch: Literal["thread", "process"] = "thread"


@attrs.frozen(kw_only=True)
class ServeSettings:
    """The section ``serve``: what ``lakelog serve`` runs beside the store, and how it stops.

    :ivar services: programs to run beside the store, each ``NAME=COMMAND``; the command's words
        are parted as by a shell, which is not asked
    :ivar stop_timeout_ms: how long an ordered stop may take in all; what has not stopped shortly
        before that is killed
    :ivar hang_timeout_ms: a service that is stopped by a signal for so long, or that says
        ``WATCHDOG=1`` and then nothing for so long, hangs, and is killed; 0 is never
    :ivar restart_first_ms: how long a service that ended is left alone; twice as long after each
        further end, and a little more or less by chance
    :ivar restart_longest_ms: how long at most
    :ivar restart_settled_ms: a service that ran for so long begins anew with ``restart_first_ms``
    :ivar status_interval_ms: how often the status file is written
    """

    services: tuple[str, ...] = ()
    stop_timeout_ms: int = field(default=30_000, validator=validators.ge(1_000))
    hang_timeout_ms: int = field(default=30_000, validator=validators.ge(0))
    restart_first_ms: int = field(default=500, validator=validators.ge(1))
    restart_longest_ms: int = field(default=60_000, validator=validators.ge(1))
    restart_settled_ms: int = field(default=60_000, validator=validators.ge(1))
    status_interval_ms: int = field(default=1_000, validator=validators.ge(100))
