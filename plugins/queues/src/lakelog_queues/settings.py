"""Section ``[consume-queue]``: RocketMQ's settings of queues, under names of lakelog."""

from __future__ import annotations

from typing import Final

import attrs
from attrs import field, validators

BATCH_UNIT_BYTES: Final = 46


@attrs.frozen(kw_only=True)
class ConsumeQueueSettings:
    """Section ``[consume-queue]``.

    :ivar file_entries: number of units in each file of a queue (RocketMQ's
        ``mappedFileSizeConsumeQueue``, counted in units of 20 bytes)
    :ivar ext_enabled: whether tags codes are written to ``consumequeue_ext/``
        (``enableConsumeQueueExt``)
    :ivar ext_file_size_bytes: length of each file there (``mappedFileSizeConsumeQueueExt``)
    :ivar batch_file_size_bytes: length of each file of a batch queue, a multiple of 46
        (``mapperFileSizeBatchConsumeQueue``)
    :ivar flush_interval_ms: interval at which files with enough changed pages are synced
    :ivar flush_least_pages: number of changed pages of 4 KiB for which a file is synced
    :ivar flush_thorough_interval_ms: interval at which all files are synced, and the checkpoint
        advances
    :ivar flush_thorough_bytes: the same, after this length of the log was dispatched
    """

    file_entries: int = field(default=300_000, validator=validators.ge(1))
    ext_enabled: bool = False
    ext_file_size_bytes: int = field(default=48 << 20, validator=validators.ge(64))
    batch_file_size_bytes: int = field(
        default=300_000 * BATCH_UNIT_BYTES, validator=validators.ge(BATCH_UNIT_BYTES)
    )
    flush_interval_ms: int = field(default=1_000, validator=validators.ge(1))
    flush_least_pages: int = field(default=2, validator=validators.ge(0))
    flush_thorough_interval_ms: int = field(default=60_000, validator=validators.ge(0))
    flush_thorough_bytes: int = field(default=128 << 20, validator=validators.ge(1))

    @batch_file_size_bytes.validator
    def _whole_units(self, _attribute: object, value: int) -> None:
        if value % BATCH_UNIT_BYTES:
            raise ValueError(f"batch_file_size_bytes must be a multiple of 46, got {value}")
