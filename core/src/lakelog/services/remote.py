"""Queues and index of an owner that a process of its own builds, as the owner sees that."""

from __future__ import annotations

import errno as numbers_of_errors
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Condition, Lock
from typing import Final

import attrs

from lakelog.dispatch.arrivals import PolledArrivals
from lakelog.dispatch.catch_up import Completion
from lakelog.dispatch.run import Dispatching, Named, resume
from lakelog.dispatch.runner import Lag
from lakelog.errors import DispatchStopped, StoreFailed
from lakelog.files.filesystem import FileSystem
from lakelog.files.pages.positions import Positions
from lakelog.files.pages.wake_page import Sleeper
from lakelog.files.shared.dispatch_lock import DispatchLock
from lakelog.files.state.checkpoint import CheckpointKeeper, StoreCheckpoint
from lakelog.log.reading.log_reader import LogReader
from lakelog.services.channel import KIND, Packet, numbers
from lakelog.services.order import Order
from lakelog.services.process import Process
from lakelog.services.supervisor import MANY_DEATHS, Supervisor

_LOG: Final = logging.getLogger("lakelog")
NAME: Final = "dispatch"
RESUME_SECONDS: Final = 60.0


@attrs.frozen
class Held:
    """What an owner has, of which its queues and index need something.

    :ivar make: makes the dispatchers for this process; told whether the files were closed in order
    :ivar completion: how this process reads queues and index otherwise
    :ivar followed: lets readers know whether queues are complete behind the log
    """

    files: FileSystem
    path: Path
    order: Order
    make: Callable[[bool], Sequence[Named]]
    completion: Completion
    positions: Positions
    reader: LogReader
    checkpoint: CheckpointKeeper
    followed: Callable[[bool], None]


class RemoteReput:
    """A :class:`~lakelog.dispatch.runner.Dispatches` whose work another process does.

    :ivar arrivals: to wait for what is dispatched, and for a failure
    """

    def __init__(
        self, held: Held, sleeper: Sleeper, failure: DispatchStopped | None = None
    ) -> None:
        """Keep what is needed; queues and index are complete, closed, and nobody's by now.

        :param failure: why they are not complete, if a dispatcher failed already
        """
        self._held = held
        self._sleeper = sleeper
        self.arrivals = PolledArrivals(self._turn, sleeper)
        self._stopped = failure
        self._in_order = True
        self._frozen = False
        self._is_ready = False
        self._closed = False
        self._last_ms = 0
        self._begun_ms = _now_ms()
        self._pausing = Lock()
        self._news = Condition()
        self._supervisor = Supervisor(self._start, self, NAME)

    def start(self) -> None:
        """Start the process, unless a dispatcher has failed already."""
        self._supervisor.begin()
        if self._stopped is not None:
            self._supervisor.want(False)

    # --- what it is asked ---

    @property
    def failure(self) -> DispatchStopped | None:
        """Why it stands still: a dispatcher failed, or the process does not stay up."""
        if self._stopped is None and self._supervisor.deaths >= MANY_DEATHS:
            return self._stop(
                f"the process that dispatches died {self._supervisor.deaths} times in a row, "
                f"lastly because {self._supervisor.last_words}; it is still tried again"
            )
        return self._stopped

    @property
    def offset(self) -> int:
        """Everything before it was dispatched, as the process says."""
        positions = self._held.positions
        return min(positions.dispatched, positions.readable)

    @property
    def lag(self) -> Lag:
        """How far it is behind; the process tells the age twice a second."""
        behind = self._held.positions.readable - self.offset
        if behind <= 0:
            return Lag(0, 0)
        return Lag(behind, max(0, _now_ms() - (self._last_ms or self._begun_ms)))

    @property
    def pid(self) -> int | None:
        """The process that dispatches, while there is one."""
        process = self._supervisor.process
        return None if process is None else process.pid

    def resume(self) -> None:
        """Start the process again, and wait until it has come to what can be read now."""
        if self._frozen and self._stopped is not None:
            raise self._stopped  # a sync failed: only a reopen can tell what is durable
        self._stopped, self._is_ready = None, False
        self._supervisor.deaths = 0
        self._supervisor.want(True)
        with self._news:
            self._news.wait_for(lambda: self._is_ready or self.failure, RESUME_SECONDS)
        if self.failure is not None:
            raise self.failure

    @contextmanager
    def paused(self) -> Iterator[Sequence[Named]]:
        """Stop the process in order, and have its dispatchers here meanwhile."""
        with self._pausing:
            self._halt(finish=False)
            try:
                with self._here() as (made, _):
                    yield made
            finally:
                if not self._closed and self._stopped is None:
                    self._supervisor.want(True)

    def close(self) -> None:
        """Let the process dispatch what can be read, and stop; do it here where it cannot.

        Raises :class:`~lakelog.errors.StoreFailed` if queues or index could not be synced.
        """
        with self._pausing:
            self._closed = True
            try:
                self._halt(finish=True)
                self._supervisor.end()
                if self._lacks() and not self._frozen and self._stopped is None:
                    self._finish_here()
            finally:
                self.arrivals.close()
        if self._frozen:
            raise StoreFailed(
                "a sync of queues or index failed; see to the disk, reopen", path=self._held.path
            )

    def _lacks(self) -> bool:
        """Whether the process left something to do: it died, or stopped before the end."""
        return not self._in_order or self.offset < self._end()

    # --- acting here ---

    def _halt(self, *, finish: bool) -> None:
        self._supervisor.want(False, finish=finish)
        self._supervisor.wait_stopped()
        self._held.positions.dispatched = self.offset

    @contextmanager
    def _here(self) -> Iterator[tuple[Sequence[Named], int]]:
        """The dispatchers in this process, and from where they lack something."""
        held, positions = self._held, self._held.positions
        with ExitStack() as closing:
            closing.callback(DispatchLock.take(held.files, held.path).release)
            made = held.make(self._in_order)
            self._in_order = False
            with ExitStack() as opened:
                for each in made:
                    opened.callback(each.dispatcher.close)
                yield made, resume(made, positions.minimum, self._end())
            self._in_order = True

    def _end(self) -> int:
        return self._held.positions.readable_elsewhere

    def _finish_here(self) -> None:
        """The process died instead of closing in order: what it left is completed and synced."""
        with self._here() as (made, start):
            dispatching = Dispatching(self._held.path, made, start)
            try:
                dispatching.run(self._held.reader.pieces(start, self._end(), verify=False))
            except DispatchStopped as stopped:
                self._stopped = stopped
                _LOG.error("%s", stopped)  # its traceback tells a user nothing
            self._held.positions.dispatched = max(dispatching.offset, self.offset)

    # --- what the supervisor tells ---

    def _start(self) -> Process:
        order = attrs.evolve(self._held.order, in_order=self._in_order)
        process = Process.start(order)
        self._in_order = False
        return process

    def started(self, process: Process) -> None:
        """It has yet to look at what is there."""
        _LOG.info("process %d dispatches for %s", process.pid, self._held.path)

    def heard(self, process: Process, packet: Packet) -> None:
        """Act on what the process said; see :mod:`.channel`."""
        match packet.get(KIND):
            case "beat":
                self._last_ms = int(packet["last_ms"])
            case "advance":
                self._advance(packet)
            case "lower":
                self._held.checkpoint.lower_index(int(packet["most_ms"]))
                process.channel.send("done")
            case "freeze":
                self._frozen = True
                self._held.checkpoint.freeze()
            case "failed":
                self._failed(packet)
            case "log":
                name, level = str(packet["name"]), int(packet["level"])
                text = "process %d: %s"
                logging.getLogger(name).log(level, text, process.pid, packet["text"])
            case "ready":
                self._held.followed(True)
                self._tell(ready=True)

    def ended(self, process: Process, *, unasked: bool) -> None:
        """It closed its files in order, or left them as a crash does."""
        self._in_order = process.is_in_order
        if unasked and not process.is_in_order:
            self._held.followed(False)  # until another one has looked at what is there
        self._tell(ready=False)

    def _advance(self, packet: Packet) -> None:
        try:
            self._held.checkpoint.advance(StoreCheckpoint(*numbers(packet, "numbers")))
        except OSError as error:  # the keeper has told the store
            _LOG.error("%s: the checkpoint cannot be written: %s", self._held.path, error)

    def _failed(self, packet: Packet) -> None:
        failure = DispatchStopped(
            str(packet["text"]),
            dispatcher=str(packet["dispatcher"]),
            offset=int(packet["offset"]),
            path=self._held.path,
        )
        number = packet.get("errno")
        if number is not None:
            name = numbers_of_errors.errorcode.get(number, "")
            failure.__cause__ = OSError(number, f"in the process that dispatches ({name})")
        self._stopped = failure
        _LOG.error("%s", failure)
        self._supervisor.want(False)
        self._tell(ready=False)

    def _tell(self, *, ready: bool) -> None:
        with self._news:
            self._is_ready = ready
            self._news.notify_all()
        self._sleeper.rouse()

    def _turn(self) -> int:
        """Changes when there is news for those who wait: it got on, or it failed."""
        return -1 if self.failure is not None else self.offset

    def _stop(self, what: str) -> DispatchStopped:
        return DispatchStopped(what, dispatcher=NAME, offset=self.offset, path=self._held.path)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
