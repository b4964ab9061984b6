"""Sections ``[group-commit]`` and ``[timed]``."""

from __future__ import annotations

from attrs import field, frozen, validators


@frozen
class GroupCommitSettings:
    """What ``group-commit`` can be told.

    :ivar sync_flush_timeout_ms: how long a put waits for its sync at most (RocketMQ's
        ``syncFlushTimeout``); it then returns ``FLUSH_DISK_TIMEOUT``
    """

    sync_flush_timeout_ms: int = field(default=5_000, validator=validators.ge(1))


@frozen
class TimedSettings:
    """What ``timed`` can be told; the defaults are RocketMQ's.

    :ivar flush_interval_ms: how often the log is looked at (``flushIntervalCommitLog``)
    :ivar flush_least_pages: a flush needs as many dirty pages of 4 KiB
        (``flushCommitLogLeastPages``); 0 is any byte
    :ivar flush_thorough_interval_ms: so often, any dirty byte is enough
        (``flushCommitLogThoroughInterval``)
    :ivar fixed_rate: whether the clock alone decides (``flushCommitLogTimed``); otherwise appends
        and commits wake it too, as soon as there are enough dirty pages
    """

    flush_interval_ms: int = field(default=500, validator=validators.ge(1))
    flush_least_pages: int = field(default=4, validator=validators.ge(0))
    flush_thorough_interval_ms: int = field(default=10_000, validator=validators.ge(0))
    fixed_rate: bool = True
