"""Builds and checks the configured strategies before any file is changed.

Two of them get a layer: :class:`Committing` commits the buffers of a staged writer to the page
cache at a fixed interval, around the flush strategy, and :class:`CheckedDecoder` restores bodies
that an append callback has encoded, with errors that name the callback.

Source of the interval's rules: ``CommitRealTimeService`` of RocketMQ. It commits if enough pages
are dirty, or the last commit is long ago. Each commit wakes the strategy, if the strategy is
:class:`~lakelog.hooks.Wakeable`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Final, NamedTuple

import attrs

from lakelog import accelerate, errors, hooks
from lakelog.accelerate import Accelerator
from lakelog.dispatch import NamedDispatcher
from lakelog.files.filesystem import FileSystem
from lakelog.files.identity import NotedStrategy, read_strategies
from lakelog.format.layout import STRATEGIES_FILE
from lakelog.hooks.kinds import StoreSettings
from lakelog.message import StoredMessage
from lakelog.registry import Registry, check_object, loading
from lakelog.runtime.locks import LockFreeEvent
from lakelog.runtime.threads import started
from lakelog.settings.effective import Settings

PAGE_BYTES: Final = 4096
_SLOW_SECONDS: Final = 0.5
_log = logging.getLogger("lakelog")


class Committing:
    """A flush strategy with periodic commits."""

    def __init__(self, inner: hooks.FlushStrategy, rules: hooks.CommitRules) -> None:
        self.waits_for_disk: bool = getattr(inner, "waits_for_disk", False)
        if (submit_later := getattr(inner, "submit_later", None)) is not None:
            self.submit_later = submit_later
        self._inner = inner
        self._wake = inner.wake if isinstance(inner, hooks.Wakeable) else lambda: None
        self._rules = rules
        self._over = LockFreeEvent()
        self._thread: Thread | None = None

    def start(self, log: hooks.Flushable) -> None:
        """Start the strategy, then the timer.

        Raises the strategy's error, and :class:`~lakelog.errors.ThreadNotStarted`.
        """
        self._inner.start(log)
        self._thread = started(
            Thread(target=self._run, args=(log,), name="lakelog-commit-staged", daemon=True)
        )

    def submit(self, end_offset: int, wait: bool) -> hooks.Outcome:
        """Submit to the strategy, which may replace its ``submit`` in ``start``."""
        return self._inner.submit(end_offset, wait)

    def _run(self, log: hooks.Flushable) -> None:
        committed, last = log.flushed, time.monotonic()
        while not self._over.wait(self._rules.interval_ms / 1000):
            begun = time.monotonic()
            if not is_due(self._rules, log.appended, committed, begun - last):
                continue
            try:
                committed = log.commit()
            except errors.StoreFailed:
                self._wake()  # its next sync raises the error, and fails its waiters
                return
            last = time.monotonic()
            if last - begun > _SLOW_SECONDS:
                _log.warning("a commit to the page cache took %.0f ms", (last - begun) * 1000)
            self._wake()

    def close(self) -> None:
        """Stop the timer; the strategy's last sync commits the rest."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._inner.close()


def is_due(rules: hooks.CommitRules, appended: int, committed: int, idle_seconds: float) -> bool:
    """Whether the bytes between ``committed`` and ``appended`` are to be committed now."""
    pages = appended // PAGE_BYTES - committed // PAGE_BYTES
    if pages >= max(rules.least_pages, 1):
        return True
    return appended > committed and (
        rules.least_pages == 0 or idle_seconds * 1000 >= rules.thorough_interval_ms
    )


class CheckedDecoder:
    """Calls ``decode`` and checks its result.

    :param decode: the method of the append callback
    :param failed: builds the error that names the callback
    """

    def __init__(
        self,
        decode: Callable[[Sequence[StoredMessage]], Sequence[StoredMessage]],
        failed: Callable[[str], errors.DecodeFailed],
    ) -> None:
        self.decode = decode
        self.failed = failed

    def __call__(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """Return the messages with their original bodies.

        Raises :class:`~lakelog.errors.DecodeFailed`.
        """
        if not messages:
            return messages
        try:
            given = self.decode(messages)
            problem = None if given is messages else _problem(messages, given)
        except errors.LakelogError:
            raise
        except Exception as error:
            if errors.raised_by_handler(error):
                raise
            did = f"raised {type(error).__name__}: {error}"
            raise self.failed(f"{did}, decoding {_shown(messages)}") from error
        if problem is not None:
            raise self.failed(f"returned {problem}, decoding {_shown(messages)}")
        return given


def _problem(messages: Sequence[StoredMessage], given: Sequence[StoredMessage]) -> str | None:
    if not isinstance(given, Sequence) or len(given) != len(messages):
        return f"{given!r:.80} for {len(messages)} messages"
    for one, other in zip(messages, given, strict=True):
        if not isinstance(other, StoredMessage) or one.physical_offset != other.physical_offset:
            return f"{other!r:.80} for the message at offset {one.physical_offset}"
        if type(other.body) is not bytes:
            return f"a body of {type(other.body).__name__}, not bytes"
    return None


def _shown(messages: Sequence[StoredMessage]) -> str:
    first, last = messages[0].physical_offset, messages[-1].physical_offset
    more = "" if first == last else f" to {last}"
    return f"messages at offset {first}{more}; check its settings, such as a key"


def decoder_of(
    callback: hooks.AppendCallback, registry: Registry, name: str
) -> CheckedDecoder | None:
    """The decoder of an append callback; ``None`` if it stores bodies unchanged.

    Raises :class:`~lakelog.errors.BadStrategy` for a ``decode`` with wrong arguments.
    """
    if not isinstance(callback, hooks.BodyDecoder):
        return None
    problem = check_object(callback, hooks.BodyDecoder)
    if problem is not None:
        raise registry.fault(hooks.Kind.APPEND_CALLBACK, name, errors.BadStrategy)(
            f"cannot read: {problem}"
        )
    return CheckedDecoder(
        callback.decode, registry.fault(hooks.Kind.APPEND_CALLBACK, name, errors.DecodeFailed)
    )


AUTO = "auto"
_AUTO_FLUSH = ("timed", "none")
"""The choices of ``flush = "auto"``: the first one installed."""
_AUTO_DISPATCHERS = ("consume-queue", "hash-index")
"""The choices of ``dispatchers = "auto"``: all that are installed."""


class Strategies(NamedTuple):
    """The strategies of one store.

    :ivar flush_failed: builds the error of a put whose flush strategy raised after the append
    :ivar replicator_failed: the same for the replicator
    :ivar decoder: restores bodies if the append callback stores them encoded
    :ivar noted: those that may store other bytes than the core's own
    :ivar blaming: gives errors the name of the plugin; called with ``flush`` or ``replicator``, and
        with what is called
    """

    append: hooks.AppendCallback
    writer: hooks.Writer
    flush: hooks.FlushStrategy
    replicator: hooks.Replicator | None
    flush_failed: Callable[[str], errors.StrategyFailed] = errors.StrategyFailed
    replicator_failed: Callable[[str], errors.StrategyFailed] = errors.StrategyFailed
    decoder: CheckedDecoder | None = None
    dispatchers: Sequence[NamedDispatcher] = ()
    cleaner: hooks.Cleaner | None = None
    disk_watcher: hooks.DiskWatcher | None = None
    noted: Mapping[str, NotedStrategy] = MappingProxyType({})
    blaming: Callable[[str, str], AbstractContextManager[None]] = lambda _key, _call: nullcontext()


def make_strategies(
    registry: Registry, settings: Settings, context: hooks.Context, *, services: bool = True
) -> Strategies:
    """Build the strategies named by ``settings``; raises :class:`~lakelog.errors.PluginError`.

    :param services: whether to build dispatchers, cleaner and watcher; see :func:`add_services`
    """
    core, append = settings.core, settings.core.append
    make = partial(registry.build, settings=settings, context=context)
    callback, writer = (
        make(hooks.Kind.APPEND_CALLBACK, append),
        make(hooks.Kind.WRITER, core.writer),
    )
    flushes, copies = flush_name(registry, settings), core.replicator
    names = {"flush": flushes, "replicator": copies}
    flush = make(hooks.Kind.FLUSH_STRATEGY, flushes)
    with registry.blaming(flushes, "waits_for_disk"):
        getattr(flush, "waits_for_disk", False)
    made = Strategies(
        callback,
        writer,
        Committing(flush, writer.traits.commit) if writer.traits.staged else flush,
        make(hooks.Kind.REPLICATOR, copies),
        registry.fault(hooks.Kind.FLUSH_STRATEGY, flushes, errors.StrategyFailed),
        registry.fault(hooks.Kind.REPLICATOR, copies, errors.StrategyFailed)
        if copies
        else errors.StrategyFailed,
        decoder_of(callback, registry, append),
        blaming=lambda key, call: registry.blaming(names[key], call),
    )
    made = made._replace(noted=dict(_to_note(made, registry, core)))
    return add_services(made, registry, settings, context) if services else made


def _to_note(
    made: Strategies, registry: Registry, core: StoreSettings
) -> Iterator[tuple[str, NotedStrategy]]:
    if core.append != StoreSettings().append:
        whole_records = made.decoder is not None
        yield "append", _noted(registry, hooks.Kind.APPEND_CALLBACK, core.append, whole_records)
    if not made.writer.traits.same_bytes:
        yield "writer", _noted(registry, hooks.Kind.WRITER, core.writer, False)


def _noted(registry: Registry, kind: hooks.Kind, name: str, whole_records: bool) -> NotedStrategy:
    return NotedStrategy(name, *(registry.package(kind, name) or ("", "")), whole_records)


_NOTED_KINDS: Final = {
    "append": hooks.Kind.APPEND_CALLBACK,
    "writer": hooks.Kind.WRITER,
}


def other_strategies(
    registry: Registry,
    settings: Settings,
    files: FileSystem,
    path: Path,
    *,
    mends: bool = False,
) -> errors.PluginError | None:
    """The error for a store whose bytes another append callback or writer has stored, if so.

    :param mends: whether nothing is put, as in a recovery: the strategy need only be installed,
        and that only if records are not whole without it
    """
    for key, noted in read_strategies(files, path).items():
        kind, chosen = _NOTED_KINDS[key], getattr(settings.core, key)
        is_there = noted.name in registry.names(kind)
        if chosen == noted.name or (mends and (is_there or noted.whole_records)):
            continue
        package = f" of {noted.package} {noted.version}" if noted.package else ""
        install = f"pip install {noted.package}=={noted.version}, " * bool(noted.package)
        remedy = "" if is_there else install or "install its plugin, "
        return (errors.PluginError if is_there else errors.MissingPlugin)(
            f"{path}: the {loading.kind_text(kind)} {noted.name!r}{package} has stored its bytes, "
            f"and {chosen!r} is in use, to which they may be unreadable: {remedy}set {key} = "
            f"{noted.name!r}, best in lakelog/lakelog.toml; if the log has none of its bytes any "
            f"more, remove lakelog/{STRATEGIES_FILE}"
        )
    return None


def add_services(
    strategies: Strategies, registry: Registry, settings: Settings, context: hooks.Context
) -> Strategies:
    """Return ``strategies`` with dispatchers, cleaner and disk watcher added."""
    core = settings.core
    return strategies._replace(
        dispatchers=make_dispatchers(registry, settings, context),
        cleaner=registry.build(hooks.Kind.CLEANER, core.cleaner, settings, context),
        disk_watcher=registry.build(hooks.Kind.DISK_WATCHER, core.disk_watcher, settings, context),
    )


def with_accelerator(
    registry: Registry, settings: Settings, context: hooks.Context
) -> hooks.Context:
    """Return ``context`` with the accelerator that ``settings`` choose, and activate it.

    An error of an installed accelerator is logged. It is raised only if the settings name the
    accelerator: :class:`~lakelog.errors.PluginError`.
    """
    for name in accelerator_names(registry, settings):
        try:
            made: Accelerator = registry.build(hooks.Kind.ACCELERATOR, name, settings, context)
            if made.seam != accelerate.SEAM:
                raise errors.PluginError(
                    f"the accelerator {name!r} has interface version {made.seam}, but this lakelog "
                    f"has {accelerate.SEAM}: install the accelerator of the same release"
                )
        except errors.PluginError as error:
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
        return registry.names(hooks.Kind.ACCELERATOR)
    return () if name == "none" else (name,)


def make_decoder(
    registry: Registry, settings: Settings, context: hooks.Context
) -> CheckedDecoder | None:
    """Build the decoder of bodies for a reader; ``None`` if its plugin is not installed."""
    name = settings.core.append
    if name not in registry.names(hooks.Kind.APPEND_CALLBACK):
        _log.warning(
            "%s: the append callback %r is not installed; bodies are returned as stored",
            *(context.path, name),
        )
        return None
    made = registry.build(hooks.Kind.APPEND_CALLBACK, name, settings, context)
    return decoder_of(made, registry, name)


def make_dispatchers(
    registry: Registry, settings: Settings, context: hooks.Context
) -> tuple[NamedDispatcher, ...]:
    """Build the dispatchers in their order; a reader ignores those that are not installed."""
    kind = hooks.Kind.DISPATCHER
    installed, owners = registry.names(kind), dict[str, str]()
    made: list[NamedDispatcher] = []
    for name in dispatcher_names(registry, settings):
        if name in installed or not context.read_only:
            dispatcher = registry.build(kind, name, settings, context)
            for folder in dispatcher.directories:
                if owners.setdefault(folder, name) != name:
                    raise registry.fault(kind, name, errors.BadStrategy)(
                        f"has the folder {folder!r}, which the dispatcher {owners[folder]!r} has "
                        "already; give each its own, or leave one out of dispatchers"
                    )
            blaming = partial(registry.blaming, name, files=True)
            made.append(NamedDispatcher(name, dispatcher, blaming))
    return tuple(made)


def make_archive(
    registry: Registry, settings: Settings, context: hooks.Context
) -> hooks.SegmentSource | None:
    """Build the source of deleted segments, if any; a reader ignores a missing plugin."""
    kind, name = hooks.Kind.SEGMENT_SOURCE, settings.core.archive
    if name is None or (context.read_only and name not in registry.names(kind)):
        return None
    made: hooks.SegmentSource = registry.build(kind, name, settings, context)
    return made


def dispatcher_names(registry: Registry, settings: Settings) -> tuple[str, ...]:
    """Names of the dispatchers in use, in their order."""
    if AUTO not in settings.core.dispatchers:
        return settings.core.dispatchers
    installed = registry.names(hooks.Kind.DISPATCHER)
    return tuple(name for name in _AUTO_DISPATCHERS if name in installed)


def flush_name(registry: Registry, settings: Settings) -> str:
    """Name of the flush strategy in use; an automatic choice is logged."""
    if settings.core.flush != AUTO:
        return settings.core.flush
    installed = registry.names(hooks.Kind.FLUSH_STRATEGY)
    name = next(each for each in _AUTO_FLUSH if each in installed)
    _log.info("flush strategy %r (flush = 'auto')", name)
    return name
