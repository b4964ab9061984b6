"""Requests to the process with the services: a file ``lakelog/request.ID`` per waiting client.

It holds lines of JSON: the request, ``{"taken": PID}`` of each process that begins to serve it, and
the answer. The client holds a lock on the first byte, which ends with the client: requests of dead
clients are not served. If the serving process dies, the next one with the services starts the
request again. Hence requests must be idempotent. Nothing is synced, as no client waits any longer
after a power cut.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from lakelog.files.filesystem import File, FileSystem
from lakelog.files.shared.ofd_lock import set_lock
from lakelog.format.layout import OWN_DIR
from lakelog.runtime.forks import register_forked

TAKEN: Final = "taken"
_PREFIX: Final = "request."


class SentRequest:
    """A request in its client."""

    def __init__(self, files: FileSystem, path: Path, what: Mapping[str, Any]) -> None:
        """Write the request in the store directory ``path``; raises ``OSError``."""
        self._files = files
        self._file = _locked(files, path / OWN_DIR)
        self._is_open = True
        register_forked(self)
        try:
            self._file.write_at(0, _line(what))
        except BaseException:  # Ctrl-C too
            self.close()
            raise

    def takers(self) -> int:
        """Number of processes that have begun to serve it."""
        return sum(TAKEN in each for each in _lines(self._file)[1:])

    def answer(self) -> dict[str, Any] | None:
        """The answer; ``None`` until there is one."""
        return _answer(_lines(self._file))

    def give_up(self) -> bool:
        """Stop waiting; return whether a process has begun to serve it and may still finish."""
        set_lock(self._file, 0, fcntl.F_UNLCK)
        return self.takers() > 0

    def close(self) -> None:
        """Remove the file."""
        with suppress(FileNotFoundError):  # the serving process removes it after the answer, too
            self._files.unlink(self._file.path)
        self.forked()

    def forked(self) -> None:
        """Close the copy in a forked child: the parent waits."""
        if self._is_open:
            self._is_open = False
            self._file.close()


class ReceivedRequest:
    """A request in the process that serves it.

    :ivar what: the content of the request
    """

    def __init__(self, files: FileSystem, file: File, what: Mapping[str, Any]) -> None:
        self.what = what
        self._files = files
        self._file = file

    def answer(self, reply: Mapping[str, Any]) -> None:
        """Write the answer; raises ``OSError``."""
        _append(self._file, reply)
        _remove(self._files, self._file)


def asked(files: FileSystem, path: Path) -> Iterator[ReceivedRequest]:
    """Yield the pending requests in the store directory ``path``, each to be served at once.

    Answered requests, and those of dead clients, are removed.
    """
    for file in _opened(files, path, write=True):
        what = _begun(files, file)
        if what is not None:
            yield ReceivedRequest(files, file, what)


def is_asked(files: FileSystem, path: Path) -> bool:
    """Whether the store directory ``path`` has any request."""
    return any(name.startswith(_PREFIX) for name, _ in files.list(path / OWN_DIR))


def is_busy(files: FileSystem, path: Path) -> bool:
    """Whether a process serves a request that has no answer yet."""
    return any(
        any(TAKEN in each for each in lines[1:]) and _answer(lines) is None
        for lines in map(_lines, _opened(files, path, write=False))
    )


def _opened(files: FileSystem, path: Path, *, write: bool) -> Iterator[File]:
    """Open the requests one after another."""
    for name, _ in files.list(path / OWN_DIR):
        if name.startswith(_PREFIX):
            with suppress(FileNotFoundError):
                file = files.open(path / OWN_DIR / name, write=write)
                try:
                    yield file
                finally:
                    file.close()


def _begun(files: FileSystem, file: File) -> dict[str, Any] | None:
    """Mark the request as taken by this process; ``None`` if it is not to be served, or not yet."""
    if _is_dead(files, file):
        return None
    lines = _lines(file)
    if _answer(lines) is not None:
        _remove(files, file)
        return None
    if not lines:
        return None  # the client is about to write it
    _append(file, {TAKEN: os.getpid()})
    # Check again: a client that saw no mark and gave up reports that nothing was done.
    return None if _is_dead(files, file) else lines[0]


def _is_dead(files: FileSystem, file: File) -> bool:
    """Whether its client is gone; the file is removed then."""
    if not set_lock(file, 0, fcntl.F_WRLCK):
        return False
    # Under the lock: a client that is just creating the file finds it unlinked, and starts again.
    _remove(files, file)
    return True


def _remove(files: FileSystem, file: File) -> None:
    with suppress(FileNotFoundError):
        files.unlink(file.path)


def _locked(files: FileSystem, folder: Path) -> File:
    """A new file, locked by this client; one that was removed as a dead client's is replaced."""
    while True:
        file = files.open(folder / f"{_PREFIX}{os.urandom(8).hex()}", write=True, create=True)
        try:
            if set_lock(file, 0, fcntl.F_WRLCK) and os.fstat(file.fileno()).st_nlink:
                return file
        except BaseException:  # Ctrl-C too
            _remove(files, file)
            file.close()
            raise
        _remove(files, file)
        file.close()


def _append(file: File, what: Mapping[str, Any]) -> None:
    """Append a line, after any partial line of a dead process."""
    file.write_at(file.size(), b"\n" + _line(what))


def _line(what: Mapping[str, Any]) -> bytes:
    return json.dumps(what).encode() + b"\n"


def _lines(file: File) -> list[dict[str, Any]]:
    """All complete lines."""
    found = []
    for line in file.read_at(0, file.size()).split(b"\n")[:-1]:
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def _answer(lines: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((each for each in lines[1:] if TAKEN not in each), None)
