"""The plugin that offers the core's own strategies."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.hookspecs import hookimpl
from lakelog.interfaces import Factory, Kind, NoSettings
from lakelog.registry.builtin import append, filewriter, flush


@hookimpl
def lakelog_append_callbacks() -> Sequence[Factory]:
    """Offer RocketMQ's record layout."""
    return [
        Factory(
            Kind.APPEND_CALLBACK, "rocketmq", NoSettings, append.make, "RocketMQ's record layout"
        )
    ]


@hookimpl
def lakelog_writers() -> Sequence[Factory]:
    """Offer the default writer."""
    return [
        Factory(
            Kind.WRITER,
            "file",
            filewriter.FileWriterSettings,
            filewriter.make,
            "small writes through a map, large ones by pwrite",
        )
    ]


@hookimpl
def lakelog_flush_strategies() -> Sequence[Factory]:
    """Offer the strategies ``none`` and ``inline``."""
    kind = Kind.FLUSH_STRATEGY
    return [
        Factory(kind, "none", NoSettings, flush.make_none, "the operating system decides"),
        Factory(kind, "inline", NoSettings, flush.make_inline, "each put syncs for itself"),
    ]
