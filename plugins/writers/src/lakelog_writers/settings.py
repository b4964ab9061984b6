"""Sections ``[mmap]``, ``[staged]`` and ``[direct]``."""

from __future__ import annotations

import attrs
from attrs import field, validators

from lakelog.hooks import CommitRules


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
    """Settings of the writer ``staged``; RocketMQ's names are in brackets.

    :ivar pool_size: number of buffers of a segment's size (``transientStorePoolSize``); allocated
        on first use; rolling to a new segment needs at least two
    :ivar lock_memory: whether all buffers are allocated at once and locked into memory (``mlock``),
        as in RocketMQ
    :ivar pool_wait_ms: longest wait of a put for a buffer for a new segment; it is then refused
    :ivar commit_interval_ms: interval at which new bytes are written to the page cache
        (``commitIntervalCommitLog``)
    :ivar commit_least_pages: number of new pages of 4 KiB that a commit waits for
        (``commitCommitLogLeastPages``)
    :ivar commit_thorough_interval_ms: interval at which a commit waits for none
        (``commitCommitLogThoroughInterval``)
    :ivar replica: whether the store is a replica (``brokerRole=SLAVE``), which must not be staged:
        it would acknowledge bytes that are lost with its process
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
    """Settings of the writer ``direct``.

    :ivar block_bytes: positions, lengths and addresses of all writes are multiples of this; 4096
        fits nearly all disks; it is an error if a file system requires more
    :ivar buffer_bytes: length of a buffer, and of the writes while the log grows fast
    :ivar buffers: number of buffers per segment: full ones being written, and written ones that
        serve reads; a put waits for the disk if all are full
    :ivar threads: number of full buffers that are written concurrently; 0 writes each in the put
        that filled it; with more than 1, a killed process may leave a gap after the committed bytes
    :ivar commit_interval_ms: interval at which new bytes are written if no buffer is full
    :ivar commit_least_pages: number of new pages of 4 KiB that a commit waits for
    :ivar commit_thorough_interval_ms: interval at which a commit waits for none
    """

    block_bytes: int = field(default=4096, validator=[validators.ge(512), _power_of_two])
    buffer_bytes: int = field(default=1 << 20, validator=[validators.ge(4096), _power_of_two])
    buffers: int = field(default=16, validator=validators.ge(2))
    threads: int = field(default=1, validator=[validators.ge(0), validators.le(64)])
    commit_interval_ms: int = field(default=200, validator=validators.ge(1))
    commit_least_pages: int = field(default=4, validator=validators.ge(0))
    commit_thorough_interval_ms: int = field(default=200, validator=validators.ge(0))

    def __attrs_post_init__(self) -> None:
        """Check that a buffer consists of whole blocks."""
        if self.buffer_bytes < self.block_bytes:
            raise ValueError(
                f"buffer_bytes ({self.buffer_bytes}) must not be less than block_bytes "
                f"({self.block_bytes})"
            )


def commit_rules(settings: StagedSettings | DirectSettings) -> CommitRules:
    """When the store commits on its own."""
    return CommitRules(
        settings.commit_interval_ms,
        settings.commit_least_pages,
        settings.commit_thorough_interval_ms,
    )
