"""``lakelog.open``: settings, plugins, strategies, then the directory, in this order."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

from lakelog.belief import Belief, ReaderFlushed
from lakelog.bounds import ReaderBounds
from lakelog.completion import Completion
from lakelog.directory import StoreDirectory, readable
from lakelog.dispatching import Named
from lakelog.dispatchwait import OwnedWait, ReaderWait
from lakelog.files import FileSystem, RealFileSystem
from lakelog.health import Health
from lakelog.housekeeping.clock import Clock, SystemClock
from lakelog.interfaces import Context
from lakelog.keeping import Onlooker, keep_house
from lakelog.logreader import LogReader
from lakelog.owner import open_owned
from lakelog.ownership import is_followed, is_owned
from lakelog.pins import read_pins
from lakelog.reading.arrivals import Arrivals, PolledArrivals, Waiting
from lakelog.recovery.damagefile import read_damage
from lakelog.registry import Registry
from lakelog.settings.catalog import MAINTENANCE
from lakelog.settings.effective import Settings
from lakelog.settings.resolver import resolve
from lakelog.source import FileSource
from lakelog.store import Store
from lakelog.strategies import (
    make_archive,
    make_cleaner,
    make_disk_watcher,
    make_dispatchers,
    make_strategies,
)

if TYPE_CHECKING:
    from lakelog.consumers.offsettable import OffsetTable
    from lakelog.reading.finder import Finder
    from lakelog.recovery.examine import Progress

Mode: TypeAlias = Literal["owner", "read"]


def open_store(  # all but the path are optional, and given by name
    path: str | os.PathLike[str],
    *,
    mode: Mode = "owner",
    settings: object | None = None,
    broker_conf: str | os.PathLike[str] | None = None,
    plugins: Sequence[object] | None = None,
    files: FileSystem | None = None,
    clock: Clock | None = None,
    **arguments: Any,
) -> Store:
    """Open the store in ``path``; as its owner, make it if nothing is there.

    :param mode: ``owner`` writes and reads, and there is one at a time; ``read`` takes no lock,
        changes no byte, and works beside a living owner
    :param settings: a mapping, an attrs object, a TOML file, or a resource of your package
    :param broker_conf: RocketMQ's settings file; ``path`` beats the paths in it
    :param plugins: plugins to use instead of those that are installed
    :param files: stands in for the operating system's files, for tests
    :param clock: stands in for the clock by which the store keeps house, for tests
    :param arguments: single settings, such as ``flush="inline"`` or ``segment_size_bytes="64MiB"``

    Raises :class:`~lakelog.errors.SettingsError`, :class:`~lakelog.errors.PluginError` and
    :class:`~lakelog.errors.StoreError`; whatever is raised, no file was changed.
    """
    if mode not in ("owner", "read"):
        raise ValueError(f"mode {mode!r} is unknown; give 'owner' or 'read'")
    place, read_only = Path(path).absolute(), mode == "read"
    opening = prepare(
        place,
        settings=settings,
        broker_conf=broker_conf,
        plugins=plugins,
        files=files,
        clock=clock,
        tolerate_missing=read_only,
        arguments=arguments,
    )
    try:
        return opening.for_reading() if read_only else opening.for_owner()
    except OSError as error:
        raise readable(error, place) from error


def prepare(
    place: Path,
    *,
    settings: object | None,
    broker_conf: str | os.PathLike[str] | None,
    plugins: Sequence[object] | None,
    files: FileSystem | None,
    tolerate_missing: bool,
    arguments: Mapping[str, Any],
    clock: Clock | None = None,
) -> Opening:
    """Find plugins and settings; nothing of the store is touched yet.

    :param tolerate_missing: whether settings of plugins that are not installed are passed over
    """
    registry = Registry.load(plugins, os.environ)
    effective = resolve(
        place,
        sections=registry.sections(),
        arguments=arguments,
        source=settings,
        broker_conf=Path(broker_conf) if broker_conf is not None else None,
        environ=os.environ,
        cwd=Path.cwd(),
        tolerate_missing=tolerate_missing,
    )
    return Opening(place, effective, registry, files or RealFileSystem(), clock or SystemClock())


@attrs.frozen
class Opening:
    """What both ways of opening need."""

    path: Path
    settings: Settings
    registry: Registry
    files: FileSystem
    clock: Clock = attrs.field(factory=SystemClock)

    def for_owner(self, progress: Progress | None = None, *, full: bool = False) -> Store:
        """Make the strategies, then take over the directory.

        :param progress: told how far the recovery has come; see :mod:`lakelog.recovery.phases`
        :param full: whether the recovery reads the whole log
        """
        core, events = self.settings.core, self.registry.events
        context = self._context(read_only=False)
        strategies = make_strategies(self.registry, self.settings, context)
        archive = make_archive(self.registry, self.settings, context)
        events.store_opening(self.path, read_only=False)

        def failed(cause: BaseException) -> None:
            context.checkpoint.freeze()
            events.store_failed(self.path, cause)

        health = Health(self.path, failed)
        context.checkpoint.on_failure = health.fail
        directory = StoreDirectory.of(self.files, self.path, core)
        arrivals = Arrivals()
        owned = open_owned(
            directory,
            core,
            strategies,
            health,
            context.checkpoint,
            arrivals,
            progress,
            full=full,
        )
        if archive is not None:
            owned.reader.add_archive(archive, core.segment_size_bytes)
        events.store_recovered(self.path, owned.recovery)
        owned.segments.on_roll = lambda start: events.segment_rolled(
            directory.segment(start), start
        )
        house = keep_house(
            owned,
            strategies.cleaner,
            strategies.disk_watcher,
            self.settings.section(MAINTENANCE),
            events,
            self.clock,
        )
        house.start()
        return Store(
            self.path,
            self.settings,
            owned.reader,
            owned,
            events,
            OwnedWait(owned.reput, arrivals, owned.log.commit if owned.log.staged else None),
            self._finder(owned.reader, owned.dispatchers, arrivals),
            self._offsets(read_only=False),
            house=house,
        )

    def for_reading(self) -> Store:
        """Look at the files; only dispatchers are made, and they keep what they build in memory."""
        core, events = self.settings.core, self.registry.events
        directory = StoreDirectory.of(self.files, self.path, core)
        directory.check_readable()
        events.store_opening(self.path, read_only=True)
        source = FileSource(
            self.files,
            directory.commitlog,
            core.segment_size_bytes,
            read_damage(self.files, self.path),
        )
        belief = Belief(self.files, self.path)
        reader = LogReader(
            source,
            ReaderBounds(source, belief.page),
            lambda: is_owned(self.files, self.path),
            ReaderFlushed(self.files, self.path, belief.page),
        )
        archive = make_archive(self.registry, self.settings, self._context(read_only=True))
        if archive is not None:
            reader.add_archive(archive, core.segment_size_bytes)
        dispatchers = make_dispatchers(self.registry, self.settings, self._context(read_only=True))
        completion = Completion(self.path, reader, dispatchers)
        arrivals = PolledArrivals(completion.reach)
        return Store(
            self.path,
            self.settings,
            reader,
            None,
            events,
            ReaderWait(completion, arrivals),
            self._finder(reader, dispatchers, arrivals, completion.refresh),
            self._offsets(read_only=True),
            house=self._onlooker(directory.commitlog, source, reader),
        )

    def _onlooker(self, commitlog: Path, source: FileSource, reader: LogReader) -> Onlooker:
        made = self.registry, self.settings, self._context(read_only=True)
        return Onlooker(
            self.path,
            source,
            commitlog,
            reader,
            self.settings.core.segment_size_bytes,
            self.settings.section(MAINTENANCE),
            self.clock,
            lambda: read_pins(self.files, self.path),
            lambda: make_cleaner(*made),
            lambda: make_disk_watcher(*made),
        )

    def _finder(
        self,
        reader: LogReader,
        dispatchers: Sequence[Named],
        arrivals: Waiting,
        refresh: Callable[[], None] | None = None,
    ) -> Callable[[], Finder]:
        def make() -> Finder:
            from lakelog.reading.finder import Finder  # brings NumPy

            entries = self.settings.section("consume-queue").file_entries
            return Finder.over(self.path, reader, dispatchers, arrivals, entries, refresh)

        return make

    def _offsets(self, *, read_only: bool) -> Callable[[], OffsetTable]:
        def make() -> OffsetTable:
            from lakelog.consumers.offsettable import OffsetTable

            return OffsetTable(self.files, self.path, read_only=read_only)

        return make

    def _context(self, *, read_only: bool) -> Context:
        return Context(
            self.path,
            self.settings.core,
            self.files,
            read_only=read_only,
            owner_follows=read_only and is_followed(self.files, self.path),
        )
