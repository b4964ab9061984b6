"""The plugin that offers the dispatcher ``consume-queue`` and the store extension ``queues``."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.format.layout import ABORT_FILE
from lakelog.hookspecs import hookimpl
from lakelog.interfaces import Context, Dispatcher, Factory, Kind, NoSettings, StoreExtension
from lakelog_queues.inferred import from_queues
from lakelog_queues.settings import ConsumeQueueSettings


@hookimpl
def lakelog_dispatchers() -> Sequence[Factory]:
    """Offer the dispatcher for consume queues."""
    return [
        Factory(
            Kind.DISPATCHER,
            "consume-queue",
            ConsumeQueueSettings,
            _dispatcher,
            "RocketMQ's consume queues, light queues and queues of batches",
            infer=from_queues,
        )
    ]


@hookimpl
def lakelog_store_extensions() -> Sequence[Factory]:
    """Offer the methods that find messages."""
    summary = "messages by queue, time and key; consumer groups"
    return [Factory(Kind.STORE_EXTENSION, "queues", NoSettings, _extension, summary)]


def _extension(_: NoSettings, __: Context) -> StoreExtension:
    from lakelog_queues.extension import QueueExtension

    return QueueExtension()


def _dispatcher(settings: ConsumeQueueSettings, context: Context) -> Dispatcher:
    """Build the dispatcher; must be called before the owner writes the file ``abort``."""
    from lakelog_queues.dispatching.consumequeues import ConsumeQueues
    from lakelog_queues.dispatching.log_heads import LogHeads
    from lakelog_queues.dispatching.tombstones import read_tombstones

    is_clean = not (context.path / ABORT_FILE).exists()
    return ConsumeQueues(
        context.files,
        context.path,
        settings,
        context.checkpoint,
        clean=context.owner_follows or is_clean,
        read_only=context.read_only,
        light_queues=context.core.light_queues,
        tombstones=read_tombstones(context.files, context.path),
        log=LogHeads.of(context),
    )
