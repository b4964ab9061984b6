"""An exclusive lock on a file, for work that one process at a time may do in a folder."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import attrs

from lakelog.errors import StoreError, StoreLocked
from lakelog.format.layout import OWN_DIR
from lakelog.runtime.forks import register_forked


@attrs.define(eq=False, slots=False)
class _OpenLock:
    """The open file of a lock; a forked child closes its copy, which would keep the lock."""

    file: IO[bytes]

    def forked(self) -> None:
        """Close the copy."""
        self.file.close()


@contextmanager
def locked(path: Path, name: str, what: str) -> Iterator[None]:
    """Hold an exclusive lock on the file ``name`` in the folder ``lakelog`` of ``path``.

    :param what: the error's text if the lock is held

    Raises :class:`~lakelog.errors.StoreLocked`, and :class:`~lakelog.errors.StoreError` if the file
    cannot be opened.
    """
    try:
        file = (path / OWN_DIR / name).open("ab")
    except OSError as error:
        raise StoreError(f"no lock can be had: {error.strerror}", path=path) from error
    with file:
        lock = _OpenLock(file)
        register_forked(lock)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreLocked(what, path=path) from None
        yield
