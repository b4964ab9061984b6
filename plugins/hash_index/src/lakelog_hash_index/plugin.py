"""The plugin that offers the dispatcher ``hash-index``."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.hookspecs import hookimpl
from lakelog.interfaces import Context, Factory, Kind
from lakelog_hash_index.settings import HashIndexSettings, from_index


def make(settings: HashIndexSettings, context: Context) -> object:
    """Make the index from its settings: on disk for an owner, in memory for a reader."""
    if context.read_only:
        from lakelog_hash_index.reader import ReaderIndex

        return ReaderIndex(settings.shape, context)
    from lakelog_hash_index.owner import OwnerIndex

    return OwnerIndex(settings.shape, context)


@hookimpl
def lakelog_dispatchers() -> Sequence[Factory]:
    """Offer the dispatcher ``hash-index``."""
    return [
        Factory(
            Kind.DISPATCHER,
            "hash-index",
            HashIndexSettings,
            make,
            "finds messages by key: RocketMQ's index files",
            infer=from_index,
        )
    ]
