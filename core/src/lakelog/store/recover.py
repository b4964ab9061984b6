"""``lakelog.recover``: what opening does after any stop, followed by a clean close."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from lakelog.errors import StoreError
from lakelog.files.filesystem import FileSystem
from lakelog.files.shared.ownership import is_owned, locked, unowned
from lakelog.format.layout import ABORT_BACKUP_FILE, ABORT_FILE, CHECKPOINT_FILE, LOCK_FILE, OWN_DIR
from lakelog.log.store_directory import StoreDirectory, readable
from lakelog.recovery.examine import Progress, examine
from lakelog.recovery.phases import READING, begin
from lakelog.recovery.report import RecoveryReport
from lakelog.store.open import Opening, prepare

_NOTHING_IS_PUT: Final = {
    "flush": "none",
    "writer": "file",
    "replicator": None,
    "cleaner": None,
    "disk_watcher": None,
    "services": {"dispatch": "thread"},
}
"""What decides how messages are written and kept plays no part, and need not be installed."""


def recover(
    path: str | os.PathLike[str],
    *,
    settings: object | None = None,
    broker_conf: str | os.PathLike[str] | None = None,
    plugins: Sequence[object] | None = None,
    files: FileSystem | None = None,
    dry_run: bool = False,
    full: bool = False,
    progress: Progress | None = None,
    **arguments: Any,
) -> RecoveryReport:
    """Recover a store that nobody owns, complete its queues and index, and leave a clean stop.

    A second call finds nothing to do. The other arguments are those of :func:`lakelog.open`.

    :param dry_run: change nothing, and say what would be done
    :param full: read the whole log; else only what a stop can have left in disorder is read, and
        the report vouches for nothing before ``read_from``
    :param progress: told how many bytes of the log were read, and how many there are at most; then
        the same of the bytes from which queues and index are completed. If it has a method
        ``phase``, that is told before which of the two begins, in words

    Raises :class:`~lakelog.errors.StoreLocked` while an owner lives,
    :class:`~lakelog.errors.NotAStore`, :class:`~lakelog.errors.BadSegment` where segments are
    missing, or over damage with ``on_damage="refuse"``, :class:`~lakelog.errors.DispatchStopped` if
    queues or index could not be completed, and any other :class:`~lakelog.errors.StoreError`.
    """
    opening = prepare(
        Path(path).absolute(),
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
        with unowned(opening.files, opening.path):
            if dry_run:
                return _planned(directory, opening, progress, full=full)
            return _recovered(opening, progress, full=full)
    except OSError as error:
        raise readable(error, opening.path) from error


def _planned(
    directory: StoreDirectory, opening: Opening, progress: Progress | None, *, full: bool
) -> RecoveryReport:
    if is_owned(directory.files, directory.path):
        raise locked(directory.files, directory.path)
    _check_writable(directory)
    begin(progress, READING)
    return examine(directory, opening.settings.core, progress, full=full).report()


def _check_writable(directory: StoreDirectory) -> None:
    """What would stop a recovery that writes, as far as it can be told without writing."""
    path = directory.path
    for name in (ABORT_FILE, ABORT_BACKUP_FILE, CHECKPOINT_FILE, LOCK_FILE):
        if (path / name).is_dir():
            raise StoreError("a file belongs there: move the directory away", path=path / name)
        _check_access(path / name)
    for folder in (path, directory.commitlog, path / OWN_DIR):
        _check_access(folder)


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
