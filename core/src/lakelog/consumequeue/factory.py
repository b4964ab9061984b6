"""How a store makes its consume queues."""

from __future__ import annotations

from lakelog.consumequeue.settings import ConsumeQueueSettings
from lakelog.format.layout import ABORT_FILE
from lakelog.interfaces import Context, Dispatcher


def make(settings: ConsumeQueueSettings, context: Context) -> Dispatcher:
    """Build the dispatcher; called before an owner writes ``abort``."""
    from lakelog.consumequeue.consumequeues import ConsumeQueues  # brings NumPy
    from lakelog.files.state.record_mark import LogHeads
    from lakelog.files.state.tombstones import read_tombstones

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
