"""The plugin that offers the dispatcher ``consume-queue`` and the store extension ``queues``.

Section ``[consume-queue]`` has RocketMQ's settings of queues, under names of lakelog. For a store
that exists, they are inferred from the lengths of its files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import attrs
from attrs import field, validators

from lakelog.format import layout
from lakelog.hooks import Context, Dispatcher, Factory, Kind, NoSettings, StoreExtension
from lakelog.hooks.hookspecs import hookimpl
from lakelog.settings.resolver import entries, file_size, listing

UNIT_BYTES: Final = 20
QUEUES_ASKED: Final = 8
"""Number of queues to examine; all have one size unless some are damaged."""
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

    file_entries: int = field(
        default=300_000, validator=[validators.ge(1), validators.le((1 << 40) // UNIT_BYTES)]
    )
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


@hookimpl
def lakelog_dispatchers() -> Sequence[Factory]:
    """Offer the dispatcher for consume queues."""
    summary = "RocketMQ's consume queues, light queues and queues of batches"
    kind, settings, infer = Kind.DISPATCHER, ConsumeQueueSettings, from_queues
    return [Factory(kind, "consume-queue", settings, _dispatcher, summary, infer)]


@hookimpl
def lakelog_store_extensions() -> Sequence[Factory]:
    """Offer the methods that find messages."""
    summary = "messages by queue, time and key; consumer groups"
    return [Factory(Kind.STORE_EXTENSION, "queues", NoSettings, _extension, summary)]


def _extension(_: NoSettings, __: Context) -> StoreExtension:
    from lakelog_queues.store import QueueExtension

    return QueueExtension()


def _dispatcher(settings: ConsumeQueueSettings, context: Context) -> Dispatcher:
    from lakelog_queues.dispatching.consumequeues import ConsumeQueues

    return ConsumeQueues(settings, context)


def from_queues(path: Path) -> Iterator[tuple[str, int, Path]]:
    """Keys of ``[consume-queue]`` with their values, each with a file that determines it.

    The value that most of the examined queues have counts.
    """
    for folder, key, unit_bytes in (
        (layout.CONSUMEQUEUE_DIR, "file_entries", UNIT_BYTES),
        (layout.CONSUMEQUEUE_EXT_DIR, "ext_file_size_bytes", 1),
        (layout.BATCHCONSUMEQUEUE_DIR, "batch_file_size_bytes", 1),
    ):
        files: dict[int, list[Path]] = {}
        every = (Path(queue) for topic in entries(path / folder) for queue in entries(Path(topic)))
        for queue in islice(every, QUEUES_ASKED):
            found = file_size(listing(queue))
            if found is not None and not found[0] % unit_bytes:
                files.setdefault(found[0] // unit_bytes, []).append(queue / found[1])
        if files:
            size = max(files, key=lambda each: len(files[each]))
            yield key, size, files[size][0]
