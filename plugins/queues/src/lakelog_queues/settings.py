"""Section ``[consume-queue]``: RocketMQ's settings of its queues, under our names."""

from __future__ import annotations

from typing import Final

import attrs
from attrs import field, validators

BATCH_UNIT_BYTES: Final = 46


@attrs.frozen(kw_only=True)
class ConsumeQueueSettings:
    """Section ``[consume-queue]``.

    :ivar file_entries: units in each file of a queue (RocketMQ's ``mappedFileSizeConsumeQueue``,
        counted in units of 20 bytes)
    :ivar ext_enabled: whether tags codes are kept in ``consumequeue_ext/``
        (``enableConsumeQueueExt``)
    :ivar ext_file_size_bytes: length of each file there (``mappedFileSizeConsumeQueueExt``)
    :ivar batch_file_size_bytes: length of each file of a queue of batches, a multiple of 46
        (``mapperFileSizeBatchConsumeQueue``)
    :ivar flush_interval_ms: how often queues are looked at for what is to be synced
    :ivar flush_least_pages: how many pages of 4 KiB of a file must have changed for its sync
    :ivar flush_thorough_interval_ms: how often everything is synced, and the checkpoint moves
    :ivar flush_thorough_bytes: the same after so many bytes of the log were dispatched
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
