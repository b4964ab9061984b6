"""``lakelog.recover``: what opening does after any stop, followed by a clean close."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from lakelog.directory import StoreDirectory, readable
from lakelog.files import FileSystem
from lakelog.opening import Opening, prepare
from lakelog.ownership import is_owned, locked
from lakelog.recovery.examine import Progress, examine
from lakelog.recovery.phases import READING, begin
from lakelog.recovery.report import RecoveryReport

_NOTHING_IS_PUT: Final = {"flush": "none", "writer": "file", "replicator": None}
"""What decides how messages are written plays no part, and need not be installed."""


def recover(
    path: str | os.PathLike[str],
    *,
    settings: object | None = None,
    broker_conf: str | os.PathLike[str] | None = None,
    plugins: Sequence[object] | None = None,
    files: FileSystem | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    **arguments: Any,
) -> RecoveryReport:
    """Recover a store that nobody owns, complete its queues and index, and leave a clean stop.

    A second call finds nothing to do. The other arguments are those of :func:`lakelog.open`.

    :param dry_run: change nothing, and say what would be done
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
        if dry_run:
            return _planned(directory, opening, progress)
        return _recovered(opening, progress)
    except OSError as error:
        raise readable(error, opening.path) from error


def _planned(
    directory: StoreDirectory, opening: Opening, progress: Progress | None
) -> RecoveryReport:
    if is_owned(directory.files, directory.path):
        raise locked(directory.files, directory.path)
    begin(progress, READING)
    return examine(directory, opening.settings.core, progress).report()


def _recovered(opening: Opening, progress: Progress | None) -> RecoveryReport:
    with opening.for_owner(progress) as store:
        failure = store.dispatch_failure
        report = store.recovery
    if failure is not None:
        raise failure
    assert report is not None  # for the type checker: an owner has one
    return report
