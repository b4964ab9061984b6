"""The program that ``serve`` starts for each follower; it runs until SIGTERM.

``python -m lakelog_daemon.follower STORE NAME``. Standard input is a JSON object with the arguments
with which the store was opened: ``settings`` and ``broker_conf`` (files, or null), and
``arguments`` (by dotted key), which may be secrets.

A healthy follower sends ``WATCHDOG=1`` three times per watchdog period. If its ``is_well`` returns
``False``, nothing is sent, and ``serve`` restarts it. A follower with a ``command`` is replaced by
that program.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any, Final

from lakelog.errors import LakelogError
from lakelog.hooks import Context, Follower, FollowerProgram, Kind, WatchedFollower
from lakelog.processes.ownership import is_followed
from lakelog.runtime.threads import soon
from lakelog.store.open import Opening, prepare
from lakelog.store.strategies import with_accelerator
from lakelog_daemon.logs import start_log, stop_log
from lakelog_daemon.notify import READY, STOPPING, WATCHDOG, Notifier

BEATS: Final = 3
"""Number of watchdog notifications per period."""
LONGEST_WAIT_S: Final = 1.0
UNUSABLE: Final = 2


def main(arguments: Sequence[str]) -> int:
    """Run a follower; returns the exit code."""
    log = start_log("INFO")
    path, name = arguments
    given = json.load(sys.stdin)
    try:
        opening = prepare(Path(path), **given)
        blaming = partial(opening.registry.blaming, name)
        follow(make(opening, name), Notifier.of(os.environ), stopped_by_signals(), blaming)
    except LakelogError as error:
        sys.stderr.write(f"{error}\n")
        return UNUSABLE
    finally:
        stop_log(log)
    return 0


def make(opening: Opening, name: str) -> Follower:
    """Build the follower ``name``; raises :class:`~lakelog.errors.PluginError`."""
    registry, settings = opening.registry, opening.settings
    registry.factory(Kind.FOLLOWER, name)
    context = Context(
        opening.path,
        settings.core,
        opening.files,
        read_only=True,
        owner_follows=is_followed(opening.files, opening.path),
    )
    context = with_accelerator(registry, settings, context)
    made: Follower = registry.build(Kind.FOLLOWER, name, settings, context)
    return made


def follow(
    follower: Follower,
    manager: Notifier,
    stop: Event,
    blaming: Callable[[str], AbstractContextManager[None]] = lambda _call: nullcontext(),
) -> None:
    """Run the follower until ``stop`` is set; raises the errors of its methods.

    :param blaming: gives errors of the follower the name of its plugin
    """
    if isinstance(follower, FollowerProgram):
        with blaming("command()"):
            command = list(follower.command())
        os.execvp(command[0], command)  # ``serve`` keeps watching the same process
    with blaming("start()"):
        follower.start()
    manager.send(READY, WATCHDOG)  # from now on serve expects notifications
    seconds = manager.watchdog_seconds
    try:
        # A signal just before a wait begins does not interrupt it, so no wait is without end.
        while not stop.wait(LONGEST_WAIT_S if seconds is None else seconds / BEATS):
            if not isinstance(follower, WatchedFollower) or follower.is_well():
                manager.send(*([] if seconds is None else [WATCHDOG]))
    finally:
        manager.send(STOPPING)
        follower.stop()


def stopped_by_signals(*, once: bool = False) -> Event:
    """An event that SIGTERM and SIGINT set; with ``once``, a second one ends the process."""
    stop, numbers = Event(), (signal.SIGTERM, signal.SIGINT)

    def on_signal(_number: int, _frame: FrameType | None) -> Any:
        for each in numbers if once else ():
            signal.signal(each, signal.SIG_DFL)
        soon(stop.set)

    for each in numbers:
        signal.signal(each, on_signal)
    return stop


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
