"""Builds and checks the configured strategies before any file is changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs

from lakelog.dispatch.run import NamedDispatcher
from lakelog.log.commit_timer import Committing
from lakelog.log.reading.decoding import CheckedDecoder, decoder_of
from lakelog.registry import Registry
from lakelog.settings.effective import Settings
from lakelog_interfaces import accelerate
from lakelog_interfaces.accelerate import Accelerator
from lakelog_interfaces.errors import PluginError, StrategyFailed
from lakelog_interfaces.strategies import (
    AppendCallback,
    Cleaner,
    Context,
    DiskWatcher,
    FlushStrategy,
    Kind,
    Replicator,
    SegmentSource,
    Writer,
)

AUTO = "auto"
_AUTO_FLUSH = ("timed", "none")
"""The choices of ``flush = "auto"``: the first one installed."""
_AUTO_DISPATCHERS = ("consume-queue", "hash-index")
"""The choices of ``dispatchers = "auto"``: all that are installed."""
_log = logging.getLogger("lakelog")


@attrs.frozen
class Strategies:
    """The strategies of one store.

    :ivar flush_failed: builds the error of a put whose flush strategy raised after the append
    :ivar replicator_failed: the same for the replicator
    :ivar decoder: restores bodies if the append callback stores them encoded
    """

    append: AppendCallback
    writer: Writer
    flush: FlushStrategy
    replicator: Replicator | None
    flush_failed: Callable[[str], StrategyFailed] = StrategyFailed
    replicator_failed: Callable[[str], StrategyFailed] = StrategyFailed
    decoder: CheckedDecoder | None = None
    dispatchers: Sequence[NamedDispatcher] = ()
    cleaner: Cleaner | None = None
    disk_watcher: DiskWatcher | None = None


def make_strategies(
    registry: Registry, settings: Settings, context: Context, *, services: bool = True
) -> Strategies:
    """Build the strategies named by ``settings``; raises :class:`~lakelog.errors.PluginError`.

    :param services: whether to build dispatchers, cleaner and watcher; see :func:`add_services`
    """
    core, append = settings.core, settings.core.append
    make = partial(registry.build, settings=settings, context=context)
    callback, writer = make(Kind.APPEND_CALLBACK, append), make(Kind.WRITER, core.writer)
    flushes, copies = flush_name(registry, settings), core.replicator
    flush = make(Kind.FLUSH_STRATEGY, flushes)
    made = Strategies(
        callback,
        writer,
        Committing(flush, writer.traits.commit) if writer.traits.staged else flush,
        make(Kind.REPLICATOR, copies),
        registry.fault(Kind.FLUSH_STRATEGY, flushes, StrategyFailed),
        registry.fault(Kind.REPLICATOR, copies, StrategyFailed) if copies else StrategyFailed,
        decoder_of(callback, registry, append),
    )
    return add_services(made, registry, settings, context) if services else made


def add_services(
    strategies: Strategies, registry: Registry, settings: Settings, context: Context
) -> Strategies:
    """Return ``strategies`` with dispatchers, cleaner and disk watcher added."""
    made, core = (registry, settings, context), settings.core
    return attrs.evolve(
        strategies,
        dispatchers=make_dispatchers(*made),
        cleaner=make_chosen(*made, Kind.CLEANER, core.cleaner),
        disk_watcher=make_chosen(*made, Kind.DISK_WATCHER, core.disk_watcher),
    )


def with_accelerator(registry: Registry, settings: Settings, context: Context) -> Context:
    """Return ``context`` with the accelerator that ``settings`` choose, and activate it.

    An error of an installed accelerator is logged. It is raised only if the settings name the
    accelerator: :class:`~lakelog.errors.PluginError`.
    """
    for name in accelerator_names(registry, settings):
        try:
            made: Accelerator = registry.build(Kind.ACCELERATOR, name, settings, context)
            if made.seam != accelerate.SEAM:
                raise PluginError(
                    f"the accelerator {name!r} has interface version {made.seam}, but this lakelog "
                    f"has {accelerate.SEAM}: install the accelerator of the same release"
                )
        except PluginError as error:
            if settings.core.accelerator == name:
                raise
            _log.warning("%s: the accelerator %r is not used: %s", context.path, name, error)
            continue
        accelerate.use(made)
        return attrs.evolve(context, accelerator=made)
    return context


def accelerator_names(registry: Registry, settings: Settings) -> tuple[str, ...]:
    """Names of accelerators to try in order; the first usable one is used."""
    name = settings.core.accelerator
    if name == AUTO:
        return registry.names(Kind.ACCELERATOR)
    return () if name == "none" else (name,)


def make_decoder(registry: Registry, settings: Settings, context: Context) -> CheckedDecoder | None:
    """Build the decoder of bodies for a reader; ``None`` if its plugin is not installed."""
    name = settings.core.append
    if name not in registry.names(Kind.APPEND_CALLBACK):
        _log.warning(
            "%s: the append callback %r is not installed; bodies are returned as stored",
            *(context.path, name),
        )
        return None
    made = registry.build(Kind.APPEND_CALLBACK, name, settings, context)
    return decoder_of(made, registry, name)


def make_chosen(
    registry: Registry, settings: Settings, context: Context, kind: Kind, name: str | None
) -> Any:
    """Build a cleaner or a disk watcher; ``None`` if none is configured."""
    if name is None:
        return None
    registry.factory(kind, name)  # before the maintenance: this error names the missing plugin
    require_maintenance(registry)
    return registry.build(kind, name, settings, context)


def require_maintenance(registry: Registry) -> None:
    """Raise :class:`~lakelog.errors.MissingPlugin` if no plugin runs cleaners and watchers."""
    if not registry.names(Kind.STORE_MAINTENANCE):
        registry.factory(Kind.STORE_MAINTENANCE, "maintenance")


def make_dispatchers(
    registry: Registry, settings: Settings, context: Context
) -> tuple[NamedDispatcher, ...]:
    """Build the dispatchers in their order; a reader ignores those that are not installed."""
    installed = registry.names(Kind.DISPATCHER)
    return tuple(
        NamedDispatcher(name, registry.build(Kind.DISPATCHER, name, settings, context))
        for name in dispatcher_names(registry, settings)
        if name in installed or not context.read_only
    )


def make_archive(registry: Registry, settings: Settings, context: Context) -> SegmentSource | None:
    """Build the source of deleted segments, if any; a reader ignores a missing plugin."""
    kind, name = Kind.SEGMENT_SOURCE, settings.core.archive
    if name is None or (context.read_only and name not in registry.names(kind)):
        return None
    made: SegmentSource = registry.build(kind, name, settings, context)
    return made


def dispatcher_names(registry: Registry, settings: Settings) -> tuple[str, ...]:
    """Names of the dispatchers in use, in their order."""
    if AUTO not in settings.core.dispatchers:
        return settings.core.dispatchers
    installed = registry.names(Kind.DISPATCHER)
    return tuple(name for name in _AUTO_DISPATCHERS if name in installed)


def flush_name(registry: Registry, settings: Settings) -> str:
    """Name of the flush strategy in use; an automatic choice is logged."""
    if settings.core.flush != AUTO:
        return settings.core.flush
    installed = registry.names(Kind.FLUSH_STRATEGY)
    name = next(each for each in _AUTO_FLUSH if each in installed)
    _log.info("flush strategy %r (flush = 'auto')", name)
    return name
