"""Requests to the process with the services: a file ``lakelog/request.ID`` while one waits.

It holds lines of JSON: the request; ``{"taken": PID}`` of each process that begins with it; and the
answer. The asker holds a lock on the file's first byte, which ends with it. So nobody does what a
dead one has asked for, and what a dead process with the services has begun, the next one does
again. Hence only what may be done twice can be asked for, while somebody waits. Nothing is synced:
after a power cut nobody waits any more.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from lakelog.files.filesystem import File, FileSystem
from lakelog.files.shared.ofd_lock import set_lock
from lakelog.format.layout import OWN_DIR
from lakelog.runtime.forks import tell_of_forks

TAKEN: Final = "taken"
_PREFIX: Final = "request."


class Request:
    """As its asker has it."""

    def __init__(self, files: FileSystem, path: Path, what: Mapping[str, Any]) -> None:
        """Leave it in the store directory ``path``; raises ``OSError``."""
        self._files = files
        self._file = _locked(files, path / OWN_DIR)
        self._is_open = True
        tell_of_forks(self)
        try:
            self._file.write_at(0, _line(what))
        except BaseException:  # Ctrl-C too
            self.close()
            raise

    def takers(self) -> int:
        """How many processes have begun with it."""
        return sum(TAKEN in each for each in _lines(self._file)[1:])

    def answer(self) -> dict[str, Any] | None:
        """What came of it; ``None`` before there is an answer."""
        return _answer(_lines(self._file))

    def give_up(self) -> bool:
        """Wait no more; whether somebody has begun with it, and may do it still."""
        set_lock(self._file, 0, fcntl.F_UNLCK)
        return self.takers() > 0

    def close(self) -> None:
        """Remove it."""
        with suppress(FileNotFoundError):  # who has answered removes it, too
            self._files.unlink(self._file.path)
        self.forked()

    def forked(self) -> None:
        """Let go in a forked child: it is the parent that waits."""
        if self._is_open:
            self._is_open = False
            self._file.close()


class Asked:
    """As the process with the services has it.

    :ivar what: the request
    """

    def __init__(self, files: FileSystem, file: File, what: Mapping[str, Any]) -> None:
        self.what = what
        self._files = files
        self._file = file

    def answer(self, said: Mapping[str, Any]) -> None:
        """Say what came of it; raises ``OSError``."""
        _append(self._file, said)
        _remove(self._files, self._file)


def asked(files: FileSystem, path: Path) -> Iterator[Asked]:
    """Each request in the store directory ``path`` whose asker waits, to be done now.

    Those of the dead, and those that were answered, are removed.
    """
    for name, _ in files.list(path / OWN_DIR):
        if name.startswith(_PREFIX):
            with suppress(FileNotFoundError):
                file = files.open(path / OWN_DIR / name, write=True)
                try:
                    what = _begun(files, file)
                    if what is not None:
                        yield Asked(files, file, what)
                finally:
                    file.close()


def is_asked(files: FileSystem, path: Path) -> bool:
    """Whether any request is in the store directory ``path``."""
    return any(name.startswith(_PREFIX) for name, _ in files.list(path / OWN_DIR))


def is_busy(files: FileSystem, path: Path) -> bool:
    """Whether somebody has begun with a request, and not answered it yet."""
    for name, _ in files.list(path / OWN_DIR):
        if name.startswith(_PREFIX):
            with suppress(FileNotFoundError):
                file = files.open(path / OWN_DIR / name)
                try:
                    lines = _lines(file)
                finally:
                    file.close()
                if any(TAKEN in each for each in lines[1:]) and _answer(lines) is None:
                    return True
    return False


def _begun(files: FileSystem, file: File) -> dict[str, Any] | None:
    """Say that this process begins; ``None`` where there is nothing to do, or not yet."""
    if _is_dead(files, file):
        return None
    lines = _lines(file)
    if _answer(lines) is not None:
        _remove(files, file)
        return None
    if not lines:
        return None  # its asker is about to write it
    _append(file, {TAKEN: os.getpid()})
    return None if _is_dead(files, file) else lines[0]  # it gave up, and saw nobody begin


def _is_dead(files: FileSystem, file: File) -> bool:
    """Whether nobody waits for it any more; then it is gone."""
    if not set_lock(file, 0, fcntl.F_WRLCK):
        return False
    _remove(
        files, file
    )  # under the lock: an asker that is just making it sees that, and starts anew
    return True


def _remove(files: FileSystem, file: File) -> None:
    with suppress(FileNotFoundError):
        files.unlink(file.path)


def _locked(files: FileSystem, folder: Path) -> File:
    """A new file that nobody takes for a dead one's."""
    while True:
        file = files.open(folder / f"{_PREFIX}{secrets.token_hex(8)}", write=True, create=True)
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
    """Add a line behind what a dead process may have left half written."""
    file.write_at(file.size(), b"\n" + _line(what))


def _line(what: Mapping[str, Any]) -> bytes:
    return json.dumps(what).encode() + b"\n"


def _lines(file: File) -> list[dict[str, Any]]:
    """All that are whole."""
    found = []
    for line in file.read_at(0, file.size()).split(b"\n")[:-1]:
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def _answer(lines: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((each for each in lines[1:] if TAKEN not in each), None)
