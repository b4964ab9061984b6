"""The plugin that offers the core's own strategies."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.codec.append_callback import RocketmqAppendCallback
from lakelog.registry.builtin.filewriter import FileWriter, FileWriterSettings
from lakelog.registry.builtin.flush import InlineFlush, NoFlush
from lakelog_interfaces.hookspecs import hookimpl
from lakelog_interfaces.strategies import Context, Factory, Kind, NoSettings


@hookimpl
def lakelog_append_callbacks() -> Sequence[Factory]:
    """Offer RocketMQ's record layout."""
    kind, summary = Kind.APPEND_CALLBACK, "RocketMQ's record layout"
    return [Factory(kind, "rocketmq", NoSettings, make_rocketmq, summary)]


@hookimpl
def lakelog_writers() -> Sequence[Factory]:
    """Offer the default writer."""
    summary = "small writes through a map, large ones by pwrite"
    return [Factory(Kind.WRITER, "file", FileWriterSettings, _file_writer, summary)]


@hookimpl
def lakelog_flush_strategies() -> Sequence[Factory]:
    """Offer the strategies ``none`` and ``inline``."""
    kind = Kind.FLUSH_STRATEGY
    return [
        Factory(kind, "none", NoSettings, lambda *_: NoFlush(), "the operating system decides"),
        Factory(kind, "inline", NoSettings, lambda *_: InlineFlush(), "each put syncs for itself"),
    ]


def make_rocketmq(_settings: NoSettings, context: Context) -> RocketmqAppendCallback:
    """Build the append callback from the core's settings."""
    return RocketmqAppendCallback.of(context.core, context.accelerator)


def _file_writer(settings: FileWriterSettings, _context: Context) -> FileWriter:
    return FileWriter(settings.map_below_bytes)
