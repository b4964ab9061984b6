"""Sections ``[group-commit]`` and ``[timed]``."""

from __future__ import annotations

from attrs import field, frozen, validators


@frozen
class GroupCommitSettings:
    """Settings of ``group-commit``.

    :ivar sync_flush_timeout_ms: longest wait of a put for its sync (RocketMQ's
        ``syncFlushTimeout``); it then returns ``FLUSH_DISK_TIMEOUT``
    """

    sync_flush_timeout_ms: int = field(default=5_000, validator=validators.ge(1))


@frozen
class TimedSettings:
    """Settings of ``timed``; the defaults are RocketMQ's.

    :ivar flush_interval_ms: interval at which the log is checked (``flushIntervalCommitLog``)
    :ivar flush_least_pages: number of dirty pages of 4 KiB that a flush requires
        (``flushCommitLogLeastPages``); 0 is any byte
    :ivar flush_thorough_interval_ms: interval at which any dirty byte is enough
        (``flushCommitLogThoroughInterval``)
    :ivar fixed_rate: whether only the clock triggers flushes (``flushCommitLogTimed``); otherwise
        appends and commits do so too, once there are enough dirty pages
    """

    flush_interval_ms: int = field(default=500, validator=validators.ge(1))
    flush_least_pages: int = field(default=4, validator=validators.ge(0))
    flush_thorough_interval_ms: int = field(default=10_000, validator=validators.ge(0))
    fixed_rate: bool = True
