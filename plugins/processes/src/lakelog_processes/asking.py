"""Requests to the process with the services, and the answers in that process.

A client writes a request (see ``requests``), wakes the watch threads of all processes, and
waits. Its time limit begins anew whenever the heartbeat of the serving process advances.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any, Final

import attrs

from lakelog import errors
from lakelog.errors import LakelogError, NoOwner, StoreClosed, StoreError, StoreLocked
from lakelog.files.filesystem import FileSystem
from lakelog.files.pages.shared_page import HEARTBEAT, OWNER_PID
from lakelog.files.shared.ownership import is_served
from lakelog.files.shared.watch import announce
from lakelog.log.store_directory import readable
from lakelog.runtime.threads import started
from lakelog.store.open_log import OpenLog
from lakelog.store.roles.managing import Managing
from lakelog_format.arguments import WrongValue
from lakelog_processes.requests import ReceivedRequest, SentRequest, asked, is_asked, is_busy

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
            reply = attrs.asdict(result) if attrs.has(type(result)) else result
            request.answer({_RESULT: reply})


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
