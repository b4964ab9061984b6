"""Requests to the process with the services, which executes management calls for all processes.

A client writes a file ``lakelog/request.ID``, wakes the watch threads of all processes, and waits.
Its time limit begins anew whenever the heartbeat of the serving process advances.

The file holds lines of JSON: the request, ``{"taken": PID}`` of each process that begins to serve
it, and the answer. The client holds a lock on the first byte, which ends with the client: requests
of dead clients are not served. If the serving process dies, the next one with the services starts
the request again. Hence requests must be idempotent. Nothing is synced, as no client waits any
longer after a power cut.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog import errors
from lakelog.arguments import WrongValue
from lakelog.dispatch import forget_topic
from lakelog.errors import LakelogError, NoOwner, StoreClosed, StoreError, StoreLocked
from lakelog.files.filesystem import File, FileSystem
from lakelog.format.layout import OWN_DIR
from lakelog.log.store_directory import readable
from lakelog.processes.locks import set_lock
from lakelog.processes.membership import announce
from lakelog.processes.ownership import is_served
from lakelog.processes.shared_page import HEARTBEAT, OWNER_PID
from lakelog.runtime.forks import register_forked
from lakelog.runtime.threads import started
from lakelog.store.open_log import OpenLog

if TYPE_CHECKING:
    from lakelog.maintenance.rounds import MaintenanceRounds, RemoteMaintenance
    from lakelog.store.owner import OwnedStore

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


VERBS: Final = ("resume_dispatch", "delete_topic")
"""The management calls; :class:`~lakelog.Store` documents their errors."""
MAINTENANCE_VERBS: Final = ("delete_unused_topics", "delete_expired")
"""The management calls executed by the maintenance."""


@attrs.define(eq=False, repr=False)
class Managing:
    """Executes :data:`VERBS` in this process; each may safely be repeated."""

    owned: OwnedStore
    maintenance: Callable[[], MaintenanceRounds | RemoteMaintenance]

    def __call__(self, verb: str, *words: str) -> Any:
        """Execute one of the verbs; raises ``KeyError`` for another one."""
        if verb not in (*VERBS, *MAINTENANCE_VERBS):
            raise KeyError(verb)  # a file of another process may have any word
        done_by = self if verb in VERBS else self.maintenance()
        return getattr(done_by, verb)(*words)

    def resume_dispatch(self) -> None:
        """Resume dispatching in this process."""
        self.owned.reput.resume()

    def delete_topic(self, topic: str) -> None:
        """Have the dispatchers remove the topic; dispatching is paused meanwhile."""
        with self.owned.reput.paused() as dispatchers:
            end = self.owned.log.sync()  # a tombstone must not reach beyond the durable end
            forget_topic(dispatchers, topic, end)


_LOG: Final = logging.getLogger("lakelog")
_LOOK_S: Final = 0.005
_ANNOUNCED: Final = 10
"""Number of polls after which the watch threads are woken again: a wake-up may come too early."""
HAND_OVER: Final = "hand_over"
"""The request to release the services; the manager of the store executes all others."""
_RESULT: Final = "result"
_ERROR: Final = "error"


class Asking:
    """Has another process execute a management call, or :data:`HAND_OVER`."""

    def __init__(self, files: FileSystem, log: OpenLog, timeout_ms: int) -> None:
        """Keep the collaborators.

        :param timeout_ms: limit for the start of a request, and for the time between two
            heartbeats while it is served

        """
        self._files = files
        self._log = log
        self._seconds = timeout_ms / 1000
        self._path = log.directory.path

    def __call__(self, verb: str, *words: str) -> Any:
        """Send the request, and wait for the result, as JSON values.

        Raises :class:`~lakelog.errors.NoOwner` if no process has the services for the time limit,
        :class:`~lakelog.errors.StoreLocked` if one has them and does not answer, and the error
        raised by that process.
        """
        try:
            request = SentRequest(self._files, self._path, {"verb": verb, "words": words})
        except OSError as error:
            raise readable(error, self._path) from error
        with closing(request):
            reply = self._wait(request)
        if _ERROR in reply:
            raise _error(reply[_ERROR])
        return reply[_RESULT]

    def _wait(self, request: SentRequest) -> Mapping[str, Any]:
        page, looks = self._log.page, 0
        end, seen = time.monotonic() + self._seconds, (0, page.words[HEARTBEAT])
        while (reply := request.answer()) is None:
            if self._log.lock.is_parting:
                raise StoreClosed("the store was closed meanwhile")
            life = request.takers(), page.words[HEARTBEAT]
            if life[0] and life != seen:
                seen, end = life, time.monotonic() + self._seconds
            if time.monotonic() >= end:
                if life == seen or not is_busy(self._files, self._path):
                    raise self._late(begun=request.give_up())
                seen, end = life, time.monotonic() + self._seconds  # an earlier request is served
            if not life[0] and looks % _ANNOUNCED == 0:
                announce(page)
            looks += 1
            time.sleep(_LOOK_S)
        return reply

    def _late(self, *, begun: bool) -> StoreError:
        state = "it was begun, and may still complete" if begun else "nothing was changed"
        if not is_served(self._files, self._path):
            return NoOwner(
                f"no process has had the services of this store for {self._seconds:g} s, but this "
                f"call needs one ({state}); open the store in a process with mode='write'",
                path=self._path,
            )
        pid = self._log.page.words[OWNER_PID]
        return StoreLocked(
            f"process {pid} has the services of this store, but did not answer for "
            f"{self._seconds:g} s ({state}): it hangs or is stopped; end it, and another follows",
            path=self._path,
            owner_pid=pid,
        )


class Answering:
    """Serves requests in the process with the services, in its own thread.

    :ivar gives_up: begins to release the services; ``None`` where this process keeps them
    """

    def __init__(self, files: FileSystem, path: Path, manager: Managing) -> None:
        self._files = files
        self._path = path
        self._manager = manager
        self.gives_up: Callable[[], None] | None = None
        self._thread: Thread | None = None
        self._is_closing = False

    def turn(self) -> None:
        """Start serving pending requests; called by the watch thread, and does not block it."""
        if self._is_closing or (self._thread is not None and self._thread.is_alive()):
            return
        if is_asked(self._files, self._path):
            thread = Thread(target=self._run, name="lakelog-requests", daemon=True)
            self._thread = started(thread)

    def close(self) -> None:
        """Start no further request; the next process with the services does the rest."""
        self._is_closing = True
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            for each in asked(self._files, self._path):
                if self._is_closing:
                    return
                self._answer(each)
        except OSError as error:
            _LOG.warning("%s: a request cannot be answered: %s", self._path, error)

    def _execute(self, verb: str, *words: str) -> Any:
        return self._hand_over() if verb == HAND_OVER else self._manager(verb, *words)

    def _hand_over(self) -> None:
        """Release in another thread, since closing waits for the request to be answered."""
        if self.gives_up is None:
            raise StoreLocked(
                f"process {os.getpid()} has the services of this store, and keeps them; end it, "
                "as by SIGTERM",
                path=self._path,
                owner_pid=os.getpid(),
            )
        self.gives_up()

    def _answer(self, request: ReceivedRequest) -> None:
        try:
            result = self._execute(request.what["verb"], *request.what["words"])
        except StoreClosed:
            return  # closing here: the next process with the services serves it
        except OSError as error:
            request.answer({_ERROR: _packed(readable(error, self._path))})
        except Exception as error:  # noqa: BLE001  # of a plugin too: the client raises it
            request.answer({_ERROR: _packed(error)})
        else:
            request.answer({_RESULT: result})


def _packed(error: Exception) -> dict[str, Any]:
    """Encode an error as JSON; an error that is not lakelog's becomes one."""
    kind = next((each for each in type(error).__mro__ if each in _kinds().values()), None)
    if kind is None:
        what = f"in process {os.getpid()}, which has the services: {type(error).__name__}: {error}"
        return _packed(StoreError(what))
    parts = {
        name: value if isinstance(value, int | str | None) else str(value)
        for name, value in vars(error).items()
    }
    return {"kind": kind.__name__, "words": [str(each) for each in error.args], "parts": parts}


def _error(packed: Mapping[str, Any]) -> Exception:
    error = (kind := _kinds()[packed["kind"]]).__new__(kind, *packed["words"])
    error.__dict__.update(packed["parts"])
    return error


def _kinds() -> dict[str, type[Exception]]:
    """The errors that can be sent to another process, by name."""
    ours = (each for each in vars(errors).values() if isinstance(each, type))
    return {
        each.__name__: each
        for each in (WrongValue, *ours)
        if issubclass(each, (LakelogError, WrongValue))
    }
