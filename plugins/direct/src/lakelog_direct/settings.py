"""Sections ``[staged]`` and ``[direct]``."""

from __future__ import annotations

import attrs
from attrs import field, validators

from lakelog.interfaces import CommitRules


def _power_of_two(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value & (value - 1):
        raise ValueError(f"{attribute.name} must be a power of two, not {value}")


def _enough_for_a_roll(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value < 2:
        raise ValueError(
            f"{attribute.name} must be 2 or more, not {value}: while one buffer is written out, "
            "the next segment needs another"
        )


@attrs.frozen(kw_only=True)
class StagedSettings:
    """What the writer ``staged`` can be told; RocketMQ's names stand in brackets.

    :ivar pool_size: how many buffers of a segment's size there are (``transientStorePoolSize``);
        they take memory once they are used, and two are the least that a roll can do with
    :ivar lock_memory: whether they are made at once and locked into memory (``mlock``), as
        RocketMQ does
    :ivar pool_wait_ms: a put that needs a new segment is refused after it has waited so long for
        a buffer
    :ivar commit_interval_ms: how often new bytes go to the page cache
        (``commitIntervalCommitLog``)
    :ivar commit_least_pages: how many new pages of 4 KiB a commit waits for
        (``commitCommitLogLeastPages``)
    :ivar commit_thorough_interval_ms: how often it waits for none
        (``commitCommitLogThoroughInterval``)
    :ivar replica: the store is a replica (``brokerRole=SLAVE``), which may not be staged: a
        replica counts what it has, and what is in its buffers dies with its process
    """

    pool_size: int = field(default=5, validator=[_enough_for_a_roll, validators.ge(2)])
    lock_memory: bool = False
    pool_wait_ms: int = field(default=1_000, validator=validators.ge(0))
    commit_interval_ms: int = field(default=200, validator=validators.ge(1))
    commit_least_pages: int = field(default=4, validator=validators.ge(0))
    commit_thorough_interval_ms: int = field(default=200, validator=validators.ge(0))
    replica: bool = False


@attrs.frozen(kw_only=True)
class DirectSettings:
    """What the writer ``direct`` can be told.

    :ivar block_bytes: positions, lengths and addresses of all writes are multiples of this; 4096
        is right for nearly all disks, and a file system that wants more is an error
    :ivar buffer_bytes: length of a buffer, and of the writes while the log grows fast
    :ivar buffers: how many of these a segment keeps: full ones that are on their way to the disk,
        and written ones that reads are served from; a put waits for the disk where all are full
    :ivar threads: how many full buffers are written at a time; 0 writes each in the put that
        filled it; with more than 1, a killed process may leave a gap behind what was committed
    :ivar commit_interval_ms: how often new bytes are written where no buffer is full
    :ivar commit_least_pages: how many new pages of 4 KiB a commit waits for
    :ivar commit_thorough_interval_ms: how often it waits for none
    """

    block_bytes: int = field(default=4096, validator=[validators.ge(512), _power_of_two])
    buffer_bytes: int = field(default=1 << 20, validator=[validators.ge(4096), _power_of_two])
    buffers: int = field(default=16, validator=validators.ge(2))
    threads: int = field(default=1, validator=[validators.ge(0), validators.le(64)])
    commit_interval_ms: int = field(default=200, validator=validators.ge(1))
    commit_least_pages: int = field(default=4, validator=validators.ge(0))
    commit_thorough_interval_ms: int = field(default=200, validator=validators.ge(0))

    def __attrs_post_init__(self) -> None:
        """A buffer is made of whole blocks."""
        if self.buffer_bytes < self.block_bytes:
            raise ValueError(
                f"buffer_bytes ({self.buffer_bytes}) must not be less than block_bytes "
                f"({self.block_bytes})"
            )


def commit_rules(settings: StagedSettings | DirectSettings) -> CommitRules:
    """When the store commits what nobody asked it to."""
    return CommitRules(
        settings.commit_interval_ms,
        settings.commit_least_pages,
        settings.commit_thorough_interval_ms,
    )
