"""The process that dispatches for an owner: ``python -m lakelog.services.dispatch FD``.

It takes byte 3 of ``lock``, looks at what queues and index have, and follows the log. It stops when
its owner says so, after a failure, and when its owner is gone: then its socket ends, and if it does
not notice, the system kills it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Final

from lakelog.dispatch.run import Dispatching, Named, resume
from lakelog.errors import DispatchStopped, LakelogError
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.pages.wake_page import Sleeper, WakePage
from lakelog.files.shared.dispatch_lock import DispatchLock
from lakelog.interfaces import Context
from lakelog.log.reading.damage_file import read_damage
from lakelog.log.reading.log_reader import LogReader
from lakelog.log.reading.source import FileSource
from lakelog.log.store_directory import StoreDirectory
from lakelog.registry import Registry
from lakelog.runtime.threads import started
from lakelog.services.channel import KIND, Channel, shortened
from lakelog.services.childcheckpoint import ChildCheckpoint
from lakelog.services.loop import DispatchLoop
from lakelog.services.order import Order
from lakelog.services.ownerspage import OwnersPage
from lakelog.services.parent import die_with
from lakelog.services.process import OF_THE_OWNER
from lakelog.store.strategies import make_dispatchers, with_accelerator

BEAT_SECONDS: Final = 0.5
STUCK_SECONDS: Final = 120.0
"""A run of records that takes longer than this counts as a hang: the heart stops beating."""


class DispatchProcess:
    """One process, from its order to its end."""

    def __init__(self, order: Order, channel: Channel) -> None:
        self._order = order
        self._path = Path(order.path)
        self._files = RealFileSystem.of_store(self._path, order.core.get("group"))
        self._channel = channel
        self._checkpoint = ChildCheckpoint(self._files, self._path, channel)
        self._page = OwnersPage(self._files, self._path, order.owner)
        self._sleeper = Sleeper(self._files, self._path)
        self._wake = WakePage.open(self._files, self._path)
        self._loop: DispatchLoop | None = None
        self._dispatching: Dispatching | None = None
        self._stopped: bool | None = None

    def run(self) -> None:
        """Dispatch until the owner says stop."""
        for target in (self._obey, self._beat):
            started(Thread(target=target, name="lakelog-dispatch-owner", daemon=True))
        with ExitStack() as closing:
            closing.callback(DispatchLock.take(self._files, self._path).release)
            for each in (made := self._made()):
                closing.callback(each.dispatcher.close)
            self._follow(made)

    def _made(self) -> tuple[Named, ...]:
        registry = Registry.load(self._order.plugins(), os.environ)
        settings = self._order.settings(registry)
        context = Context(
            self._path,
            settings.core,
            self._files,
            self._checkpoint,
            in_order=self._order.in_order,
        )
        context = with_accelerator(registry, settings, context)
        self._reader = self._make_reader(context)
        return make_dispatchers(registry, settings, context)

    def _make_reader(self, context: Context) -> LogReader:
        directory = StoreDirectory.of(self._files, self._path, context.core)
        damage = read_damage(self._files, self._path)
        size = context.core.segment_size_bytes
        source = FileSource(self._files, directory.commitlog, size, damage)
        return LogReader(source, self._page, lambda: True)

    def _follow(self, made: tuple[Named, ...]) -> None:
        start = resume(made, self._page.minimum(), self._page.end())
        dispatching = self._dispatching = Dispatching(self._path, made, start)
        loop = DispatchLoop(
            self._page, self._reader.pieces, dispatching, self._sleeper, self._tell_waiting
        )
        self._loop = loop
        if self._stopped is not None:  # it came before there was a loop
            loop.stop(finish=self._stopped)
        try:
            loop.catch_up()
            self._channel.send("ready")
            loop.run()
        except DispatchStopped as stopped:
            self._tell_failure(stopped)

    def _tell_failure(self, stopped: DispatchStopped) -> None:
        logging.getLogger("lakelog").debug("the failure in full", exc_info=stopped.__cause__)
        self._channel.send(
            "failed",
            text=shortened(str(stopped).removeprefix(f"{self._path}: ")),
            dispatcher=stopped.dispatcher,
            offset=stopped.offset,
            errno=_errno(stopped),
        )

    def _tell_waiting(self) -> None:
        if self._wake is not None:
            self._wake.wake()

    def stop(self, *, finish: bool = False) -> None:
        """Stop in order."""
        self._stopped = finish
        if self._loop is not None:
            self._loop.stop(finish=finish)

    # --- beside the loop ---

    def _obey(self) -> None:
        while True:
            packet = self._channel.receive()
            if packet is None:
                os._exit(1)  # nobody is there to flush for: the next owner completes what lacks
            if packet[KIND] == "stop":
                self.stop(finish=bool(packet.get("finish")))
            elif packet[KIND] == "done":
                self._checkpoint.answered()

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT_SECONDS)
            loop, dispatching = self._loop, self._dispatching
            if loop is None or time.monotonic() - loop.turned < STUCK_SECONDS:
                last_ms = dispatching.last_timestamp_ms if dispatching is not None else 0
                self._channel.send("beat", last_ms=last_ms)


class _Forward(logging.Handler):
    """Hands what is logged here to the owner's log."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001  # a log line must not stop what logs it
            self.handleError(record)
            return
        self._channel.send("log", level=record.levelno, name=record.name, text=shortened(text))


def _errno(error: BaseException | None) -> int | None:
    """The number of the operating system's error behind one of ours, if there is one."""
    while error is not None:
        number = getattr(error, "errno", None)
        if isinstance(number, int):
            return number
        error = error.__cause__
    return None


def main(fd: int) -> int:
    """Take the order from the socket, and carry it out; the exit status."""
    for number in OF_THE_OWNER:
        signal.signal(number, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=fd))
    packet = channel.receive()
    if packet is None:
        return 1
    del packet[KIND]
    order = Order(**packet)
    die_with(order.owner)
    logging.getLogger().addHandler(_Forward(channel))
    return _carry_out(order, channel)


def _carry_out(order: Order, channel: Channel) -> int:
    try:
        process = DispatchProcess(order, channel)
        process.run()
    except (LakelogError, OSError, ImportError) as error:
        channel.send("closed", error=shortened(f"{type(error).__name__}: {error}"))
        return 1
    channel.send("closed", error=None)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
