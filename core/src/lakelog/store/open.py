"""``lakelog.open``: settings, plugins, strategies, then the directory, in this order.

A forked child opens its store again in the same mode.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, get_args

from lakelog.arguments import WrongValue, file_path, folder, shown, wrong_type
from lakelog.errors import StoreReadOnly
from lakelog.files.filesystem import FileSystem, RealFileSystem
from lakelog.hooks import Clock
from lakelog.log.store_directory import readable, unread
from lakelog.registry import Registry
from lakelog.runtime.threads import check_interpreter
from lakelog.settings.effective import ATTACH
from lakelog.settings.resolver import resolve
from lakelog.store.joining import kept_services, reader_parts, shared_parts
from lakelog.store.log_store import LogStore
from lakelog.store.owner import owner_parts
from lakelog.store.parts import NO_WRITING, OpenRequest, RoleParts
from lakelog.store.strategies import other_strategies

if TYPE_CHECKING:
    from lakelog.recovery.report import Progress
    from lakelog_queues.store import Store

Mode: TypeAlias = Literal["write", "read", "exclusive", "replica"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)


def known_mode(mode: str) -> Mode:
    """Return ``mode``; raises ``ValueError`` if it is none."""
    for each in MODES:
        if mode == each:
            return each
    raise WrongValue(f"mode {shown(mode)} is unknown; give one of {', '.join(map(repr, MODES))}")


_EXCLUSIVE: Final = "mode='exclusive' admits no other process"
_NOT_LISTENING: Final = "attach.listen = false admits no other process"


def open_role(request: OpenRequest, mode: Mode) -> RoleParts:
    """Open the store in ``mode``; a writer joins the processes that have it open.

    Raises :class:`~lakelog.errors.StoreReadOnly` if files may not be written; otherwise as
    :func:`lakelog.open`, with ``OSError``.
    """
    if mode == "read":
        return reader_parts(request)
    try:
        if mode == "replica":
            return owner_parts(request, replica=True)
        alone = _EXCLUSIVE if mode == "exclusive" else _why_alone(request)
        return shared_parts(request) if alone is None else owner_parts(request, alone=alone)
    except OSError as error:
        if error.errno not in NO_WRITING:
            raise
        raise StoreReadOnly(
            f"{error.strerror or error}; check permissions of it and of the folders above, or "
            "open the store with mode='read'",
            path=error.filename or request.path,
        ) from error


def open_serving(request: OpenRequest) -> RoleParts:
    """Open the store, take its services, and keep them.

    Raises :class:`~lakelog.errors.StoreLocked` if another process keeps them, or has the
    store exclusively.
    """
    alone = _why_alone(request)
    if alone is None:
        return kept_services(request)
    return owner_parts(request, alone=alone, replica=None)


def in_a_child(request: OpenRequest, mode: Mode) -> Callable[[], RoleParts] | None:
    """Return a function that reopens the store in a forked child, or ``None``.

    A reader can always be reopened, since it takes no lock of the store.
    """
    refuses = request.settings.section(ATTACH).on_fork == "refuse"
    if mode == "replica" or (mode != "read" and refuses):
        return None
    return lambda: request.trying(lambda: open_role(request, mode))


def _why_alone(request: OpenRequest) -> str | None:
    """Why no other process may write beside this one; ``None`` if others may."""
    return None if request.settings.section(ATTACH).listen else _NOT_LISTENING


def open_store(  # all but the path are optional, and given by name
    path: str | os.PathLike[str],
    *,
    mode: Mode = "write",
    settings: object | None = None,
    broker_conf: str | os.PathLike[str] | None = None,
    plugins: Sequence[object] | None = None,
    files: FileSystem | None = None,
    clock: Clock | None = None,
    **arguments: Any,
) -> Store:
    """Open the store in ``path``; create it if missing, except for reading.

    :param mode: ``write`` appends and reads, alone or beside other processes; one of them has the
        services (dispatching, retention, checkpoint) and another takes over when it ends.
        ``exclusive`` allows only readers beside it. ``read`` takes no lock, changes no byte, and
        needs no owner. ``replica`` receives the log of a master in place of puts
    :param settings: a mapping, an attrs object, a TOML file, or a resource of your package
    :param broker_conf: RocketMQ's settings file, read by lakelog-rocketmq; ``path`` takes
        precedence over the paths in it
    :param plugins: plugins to use beside ``queues``, ``retention`` and the core's own, in place of
        the other installed ones
    :param files: replaces the operating system's files, for tests
    :param clock: replaces the clock of delays, retries and disk-space maintenance, for tests
    :param arguments: single settings, such as ``flush="inline"`` or ``segment_size_bytes="64MiB"``
    :returns: the store, with the methods of lakelog-queues if that is installed

    Raises ``TypeError`` and ``ValueError`` for invalid arguments,
    :class:`~lakelog.errors.SettingsError`, :class:`~lakelog.errors.PluginError` and
    :class:`~lakelog.errors.StoreError`. Kinds of the last are
    :class:`~lakelog.errors.StoreLocked` if another process has the store exclusively, or if this
    process requests it exclusively while others have it open,
    :class:`~lakelog.errors.ThreadNotStarted`, and :class:`~lakelog.errors.ReadFailed` for a reader.

    After an error no message has changed, and no thread, descriptor or lock remains. If a new store
    was to be created, an empty one may remain.
    """
    mode = known_mode(mode)
    opening = prepare(
        path,
        settings=settings,
        broker_conf=broker_conf,
        plugins=plugins,
        files=files,
        clock=clock,
        tolerate_missing=mode == "read",
        reads=mode == "read",
        arguments=arguments,
    )
    try:
        return opening.trying(lambda: opening.store(open_role(opening, mode), mode))
    except OSError as error:
        raise (unread if mode == "read" else readable)(error, opening.path) from error


# The names in Python's errors of its arguments, and the place where pickle finds it.
open_store.__module__, open_store.__qualname__ = "lakelog", "open"


def open_to_serve(path: str | os.PathLike[str], **given: Any) -> Store:
    """Open the store in ``path`` and take its services, for ``lakelog serve``.

    :param given: as for :func:`prepare`

    Raises as :func:`open_store`, and :class:`~lakelog.errors.StoreLocked` if another process keeps
    the services.
    """
    opening = prepare(path, **given)
    try:
        return opening.trying(lambda: opening.store(open_serving(opening), "write"))
    except OSError as error:
        raise readable(error, opening.path) from error


def prepare(  # noqa: PLR0913  # those of an open, and two options by name
    path: str | os.PathLike[str],
    *,
    settings: object | None = None,
    broker_conf: str | os.PathLike[str] | None = None,
    plugins: Sequence[object] | None = None,
    files: FileSystem | None = None,
    clock: Clock | None = None,
    tolerate_missing: bool = False,
    reads: bool = False,
    arguments: Mapping[str, Any],
) -> Opening:
    """Load plugins and settings; changes no file of the store.

    :param tolerate_missing: whether to ignore settings of plugins that are not installed: nothing
        is put
    :param reads: whether the store is only read, also if it was written by a plugin that is not in
        use
    :param arguments: single settings; the other parameters are those of :func:`open_store`

    Raises ``TypeError``, ``ValueError``, :class:`~lakelog.errors.SettingsError`,
    :class:`~lakelog.errors.PluginError` and :class:`~lakelog.errors.ReadFailed`.
    """
    check_interpreter()
    place = folder("path", path)
    if broker_conf is not None:
        broker_conf = file_path("broker_conf", broker_conf, "RocketMQ's settings file")
    if clock is not None and not isinstance(clock, Clock):
        raise wrong_type("clock", clock, "a lakelog.hooks.Clock, such as lakelog_testing.FakeClock")
    if files is not None and not isinstance(files, FileSystem):
        raise wrong_type("files", files, "a lakelog.files.filesystem.FileSystem")
    registry = Registry.load(plugins, os.environ)
    effective = resolve(
        place,
        installed=registry.installed(place),
        arguments=arguments,
        source=settings,
        broker_conf=broker_conf,
        environ=os.environ,
        cwd=Path.cwd(),
        tolerate_missing=tolerate_missing,
    )
    group = None if tolerate_missing else effective.core.group
    seam = files or RealFileSystem.of_store(place, group)
    opening = Opening(place, effective, registry, seam, clock)
    opening.extension  # noqa: B018  # a wrong one is an error before any file is touched
    if not reads:
        other = other_strategies(registry, effective, seam, place, mends=tolerate_missing)
        if other is not None:
            raise other
    return opening


class Opening(OpenRequest):
    """The ways to open one store."""

    def for_owner(self, progress: Progress | None = None, *, full: bool = False) -> Store:
        """Open as the exclusive owner, for recovery commands.

        :param progress: receives the progress of recovery; see :mod:`lakelog.recovery.report`
        :param full: whether recovery reads the whole log
        """
        alone = "lakelog recover is running"
        self.serves = False

        def build() -> Store:
            parts = owner_parts(self, progress, full=full, alone=alone, recovers=True)
            return self.store(parts, "exclusive")

        return self.trying(build)

    def store(self, parts: RoleParts, mode: Mode) -> Store:
        """The open store with these parts; ``mode`` decides what a forked process may do."""
        made = LogStore if self.extension is None else self.extension.store_class
        store = made(parts, in_a_child(parts.request, mode))
        return cast("Store", store)
