"""``lakelog.recover``: recovers a store as opening does, then closes it cleanly.

``lakelog.promote`` and ``lakelog.cut_replica`` do so with a replica.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from lakelog.arguments import folder, whole, wrong_type
from lakelog.errors import StoreError
from lakelog.files import filesystem, identity
from lakelog.format.layout import ABORT_BACKUP_FILE, ABORT_FILE, CHECKPOINT_FILE, LOCK_FILE, OWN_DIR
from lakelog.log.store_directory import StoreDirectory, readable
from lakelog.processes import membership, ownership
from lakelog.recovery.examine import examine
from lakelog.recovery.report import READING, Progress, RecoveryReport, begin
from lakelog.store.open import Opening, prepare

_NOTHING_IS_PUT: Final = {
    "flush": "none",
    "writer": "file",
    "replicator": None,
    "cleaner": None,
    "disk_watcher": None,
    "services": {"dispatch": "thread"},
}
"""Settings that only matter for writing and retention; their plugins need not be installed."""


def recover(
    path: str | os.PathLike[str],
    *,
    settings: object | None = None,
    broker_conf: str | os.PathLike[str] | None = None,
    plugins: Sequence[object] | None = None,
    files: filesystem.FileSystem | None = None,
    dry_run: bool = False,
    full: bool = False,
    progress: Progress | None = None,
    **arguments: Any,
) -> RecoveryReport:
    """Recover a store that no process has open, complete its queues and index, and stop cleanly.

    A second call finds nothing to do. The other arguments are those of :func:`lakelog.open`.

    :param dry_run: change nothing and report what would be done
    :param full: read the whole log; by default only the part that a stop can have damaged is read,
        and the report guarantees nothing before ``read_from``
    :param progress: called with the bytes of the log read so far and their maximum, then with the
        same for queues and index. If it has a method ``phase``, that receives a description before
        each of the two

    Raises :class:`~lakelog.errors.StoreLocked` while an owner lives,
    :class:`~lakelog.errors.NotAStore`, :class:`~lakelog.errors.BadSegment` for missing segments
    or, with ``on_damage="refuse"``, for damage, :class:`~lakelog.errors.DispatchStopped` if
    queues or index could not be completed, and any other :class:`~lakelog.errors.StoreError`.
    """
    check_progress(progress)
    opening = prepare(
        path,
        settings=settings,
        broker_conf=broker_conf,
        plugins=plugins,
        files=files,
        tolerate_missing=True,
        arguments={**arguments, **_NOTHING_IS_PUT},
    )
    try:
        directory = StoreDirectory.of(opening.files, opening.path, opening.settings.core)
        directory.check_readable()
        with ownership.unowned(opening.files, opening.path):
            if dry_run:
                return _planned(directory, opening, progress, full=full)
            return _recovered(opening, progress, full=full)
    except OSError as error:
        raise readable(error, opening.path) from error


def check_progress(progress: Progress | None) -> None:
    """Raise ``TypeError`` before anything is read if ``progress`` cannot be called."""
    if progress is not None and not callable(progress):
        raise wrong_type("progress", progress, "a function of the bytes read, and their total")


def _planned(
    directory: StoreDirectory, opening: Opening, progress: Progress | None, *, full: bool
) -> RecoveryReport:
    if ownership.is_owned(directory.files, directory.path):
        raise ownership.locked(directory.files, directory.path)
    _check_writable(directory)
    begin(progress, READING)
    return examine(directory, opening.settings.core, progress, full=full).report


def _check_writable(directory: StoreDirectory) -> None:
    """Raise if a recovery could not write, as far as a check without writing can find out."""
    path = directory.path
    for name in (ABORT_FILE, ABORT_BACKUP_FILE, CHECKPOINT_FILE, LOCK_FILE):
        if (path / name).is_dir():
            raise StoreError("a file belongs there: move the directory away", path=path / name)
        _check_access(path / name)
    for needed in (path, directory.commitlog, path / OWN_DIR):
        _check_access(needed)


def _check_access(path: Path) -> None:
    if path.exists() and not os.access(path, os.W_OK):
        raise StoreError("it cannot be written; check permissions", path=path)


def _recovered(opening: Opening, progress: Progress | None, *, full: bool) -> RecoveryReport:
    with opening.for_owner(progress, full=full) as store:
        failure = store.dispatch_failure
        report = store.recovery
    if failure is not None:
        raise failure
    assert report is not None  # for the type checker: an owner has one
    return report


def promote(path: str | os.PathLike[str], **options: Any) -> RecoveryReport:
    """Make a replica that no process has open a store of its own, which takes puts.

    Its log is recovered up to the last whole record, and all of it counts as durable. The options
    are those of :func:`recover`. The logs of the two differ from then on, if the former master
    appends too.

    Raises the errors of :func:`recover`, and :class:`~lakelog.errors.StoreError` for any other
    store.
    """
    with _of_replica(path):
        pass
    report = recover(path, **options)
    with _of_replica(path) as (files, place, _):
        identity.remove_replica(files, place)
    recover(path, **options)  # its checkpoint then confirms the whole log
    return report


def cut_replica(path: str | os.PathLike[str], offset: int, **options: Any) -> RecoveryReport:
    """Cut the log of a replica that no process has open, where it differs from its master.

    The cut bytes are moved to ``lakelog/quarantine``, and queues and index are cut too.

    :param offset: physical offset at which a record starts; nothing before it changes

    Raises as :func:`promote`.
    """
    cut = whole("offset", offset)
    with _of_replica(path) as (files, place, state):
        identity.write_replica(files, place, state._replace(cut=cut))
    return recover(path, **options)


@contextmanager
def _of_replica(
    path: str | os.PathLike[str],
) -> Iterator[tuple[filesystem.FileSystem, Path, identity.ReplicaState]]:
    """Lock a replica, and yield its state; raises as :func:`promote`."""
    place = folder("path", path)
    files = filesystem.RealFileSystem.of_store(place)
    try:
        state = identity.read_replica(files, place)
    except OSError as error:
        raise readable(error, place) from error
    if state is None:
        raise StoreError("it is no replica: it has no lakelog/replica.json", path=place)
    lock = membership.Membership.alone(files, place)
    try:
        yield files, place, state
    finally:
        lock.leave()
