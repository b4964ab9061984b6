"""``lakelog.open``: settings, plugins, strategies, then the directory, in this order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from lakelog.directory import StoreDirectory, readable
from lakelog.files import FileSystem, RealFileSystem
from lakelog.health import Health
from lakelog.interfaces import Context
from lakelog.logreader import LogReader
from lakelog.owner import open_owned
from lakelog.ownership import is_owned
from lakelog.positions import Positions
from lakelog.registry import Registry
from lakelog.settings.effective import Settings
from lakelog.settings.resolver import resolve
from lakelog.source import FileSource, ViewSource
from lakelog.store import Store
from lakelog.strategies import make_strategies

Mode: TypeAlias = Literal["owner", "read"]


def open_store(  # all but the path are optional, and given by name
    path: str | os.PathLike[str],
    *,
    mode: Mode = "owner",
    settings: object | None = None,
    broker_conf: str | os.PathLike[str] | None = None,
    plugins: Sequence[object] | None = None,
    files: FileSystem | None = None,
    **arguments: Any,
) -> Store:
    """Open the store in ``path``; as its owner, make it if nothing is there.

    :param mode: ``owner`` writes and reads, and there is one at a time; ``read`` takes no lock,
        changes no byte, and works beside a living owner
    :param settings: a mapping, an attrs object, a TOML file, or a resource of your package
    :param broker_conf: RocketMQ's settings file; ``path`` beats the paths in it
    :param plugins: plugins to use instead of those that are installed
    :param files: stands in for the operating system's files, for tests
    :param arguments: single settings, such as ``flush="inline"`` or ``segment_size_bytes="64MiB"``

    Raises :class:`~lakelog.errors.SettingsError`, :class:`~lakelog.errors.PluginError` and
    :class:`~lakelog.errors.StoreError`; whatever is raised, no file was changed.
    """
    if mode not in ("owner", "read"):
        raise ValueError(f"mode {mode!r} is unknown; give 'owner' or 'read'")
    place, read_only = Path(path).absolute(), mode == "read"
    registry = Registry.load(plugins, os.environ)
    effective = resolve(
        place,
        sections=registry.sections(),
        arguments=arguments,
        source=settings,
        broker_conf=Path(broker_conf) if broker_conf is not None else None,
        environ=os.environ,
        cwd=Path.cwd(),
        tolerate_missing=read_only,
    )
    opening = _Opening(place, effective, registry, files or RealFileSystem())
    try:
        return opening.for_reading() if read_only else opening.for_owner()
    except OSError as error:
        raise readable(error, place) from error


@attrs.frozen
class _Opening:
    """What both ways of opening need."""

    path: Path
    settings: Settings
    registry: Registry
    files: FileSystem

    def for_owner(self) -> Store:
        """Make the strategies, then take over the directory."""
        core, events = self.settings.core, self.registry.events
        strategies = make_strategies(
            self.registry, self.settings, Context(self.path, core, self.files)
        )
        events.store_opening(self.path, read_only=False)
        health = Health(self.path, lambda cause: events.store_failed(self.path, cause))
        directory = StoreDirectory.of(self.files, self.path, core)
        owned = open_owned(directory, core, strategies, health)
        owned.segments.on_roll = lambda start: events.segment_rolled(
            directory.segment(start), start
        )
        reader = LogReader(ViewSource(owned.segments), _OwnedBounds(owned.positions), _never)
        return Store(self.path, self.settings, reader, owned, events)

    def for_reading(self) -> Store:
        """Look at the files; no strategy is made."""
        core, events = self.settings.core, self.registry.events
        directory = StoreDirectory.of(self.files, self.path, core)
        directory.check_readable()
        events.store_opening(self.path, read_only=True)
        source = FileSource(self.files, directory.commitlog, core.segment_size_bytes)
        reader = LogReader(source, _FileBounds(source), lambda: is_owned(self.files, self.path))
        return Store(self.path, self.settings, reader, None, events)


def _never() -> bool:
    return False


@attrs.frozen
class _OwnedBounds:
    """The owner knows where its log begins and ends."""

    positions: Positions

    def minimum(self) -> int:
        return self.positions.minimum

    def end(self) -> int | None:
        return self.positions.confirmed


@attrs.frozen
class _FileBounds:
    """Everybody else goes by the files."""

    source: FileSource

    def minimum(self) -> int:
        return next(iter(self.source.starts()), 0)

    def end(self) -> int | None:
        return None
