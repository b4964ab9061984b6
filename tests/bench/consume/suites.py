"""One consumer and four, 1 and 32 messages a poll; and four, of which one is killed.

``python -m tests.bench.consume.suites PEER DIRECTORY MOST IDLE_S NOTES`` consumes: it is ready,
waits for a line, consumes until nothing came for ``IDLE_S``, and prints its figures as JSON. With a
file for NOTES, it appends the number of each message that it takes, and works for a moment on each
poll, in which a kill finds it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tests.bench import running
from tests.bench.consume.peers import LEASE_S, PEERS, peer
from tests.bench.model import (
    LAKELOG,
    ROCKETMQ,
    CannotRunError,
    Column,
    Contender,
    Contest,
    Sample,
    Suite,
    counted,
)
from tests.broker.later import java, rocketmqs_broker

_IDLE_S: Final = 1.0
_AFTER_A_KILL_S: Final = 5.0 * LEASE_S
_WORK_S: Final = 0.002
_NO_NOTES: Final = "-"
_BY_HAND: Final = {"sqlite": "sqlite"}


def _figures(consumers: Sequence[subprocess.Popen[str]]) -> list[dict[str, float]]:
    return [json.loads(running.line_of(each)) for each in consumers]


def _rate(begun_s: float, count: int, found: Sequence[dict[str, float]]) -> Sample:
    if sum(each["messages"] for each in found) < count:
        raise CannotRunError("messages are missing")
    return {"rows_s": count / (max(each["end_s"] for each in found) - begun_s)}


def _command(name: str, directory: Path, most: int, idle_s: float, notes: object) -> list[str]:
    return running.python(__name__, name, directory, most, idle_s, notes)


@contextmanager
def _filled(name: str, directory: Path, count: int, processes: int) -> Iterator[None]:
    made = peer(name)
    if processes > 1 and not made.shares:
        raise CannotRunError("it is for one process at a time")
    with made.serving(directory):
        try:
            made.fill(directory, count)
        except ImportError as missing:
            raise CannotRunError(str(missing)) from missing
        yield


def consumed(name: str, processes: int, most: int, count: int, directory: Path) -> Sample:
    """Messages per second that all processes together take and acknowledge."""
    command = _command(name, directory, most, _IDLE_S, _NO_NOTES)
    commands = [command] * processes
    with _filled(name, directory, count, processes), running.started(commands) as started:
        begun_s = time.time()
        running.go(started)
        return _rate(begun_s, count, _figures(started))


def killed(name: str, processes: int, most: int, count: int, directory: Path) -> Sample:
    """As :func:`consumed`; one process is killed after a third, and another takes its place.

    ``twice`` is the number of messages delivered again, ``never`` of those not delivered at all.
    """
    queue, notes = directory / "queue", directory / "notes"
    queue.mkdir()
    notes.touch()
    command = _command(name, queue, most, _AFTER_A_KILL_S, notes)
    with (
        _filled(name, queue, count, processes),
        running.started([command] * processes) as started,
    ):
        begun_s = time.time()
        running.go(started)
        while notes.stat().st_size < 8 * (count // 3):
            if time.time() > begun_s + 60:
                raise CannotRunError("it does not come to a third")
            time.sleep(0.001)
        started[0].kill()
        with running.started([command]) as another:
            running.go(another)
            found = _figures([*started[1:], *another])
    taken = notes.read_bytes()
    numbers = [taken[at : at + 8] for at in range(0, len(taken), 8)]
    rows_s = len(set(numbers)) / (max(each["end_s"] for each in found) - begun_s)
    unique = len(set(numbers))
    return {"rows_s": rows_s, "twice": len(numbers) - unique, "never": count - unique}


def consumed_in_java(processes: int, most: int, count: int, directory: Path) -> Sample:
    """As :func:`consumed`, by RocketMQ's pull consumer from its broker on this machine."""
    import pytest  # its outcome is raised without a JDK

    try:
        with rocketmqs_broker(directory) as serving:
            server = str(serving.server)
            running.output(java("Pull", server, "fill", str(count), home=directory))
            arguments = [(str(most), str(number), str(processes)) for number in range(processes)]
            commands = [java("Pull", server, *each, home=directory) for each in arguments]
            with running.started(commands) as started:
                begun_s = time.time()
                running.go(started)
                return _rate(begun_s, count, _figures(started))
    except pytest.skip.Exception as missing:
        raise CannotRunError(str(missing)) from missing


def _contests(quick: bool) -> Sequence[Contest]:
    return [
        Contest(
            f"{counted(processes, 'consumer')}, {most} a poll",
            [
                Contender(
                    name,
                    made.note,
                    partial(consumed, name, processes, most, _count(most, quick=quick)),
                    _BY_HAND,
                )
                for name, made in PEERS.items()
            ]
            + [
                Contender(
                    ROCKETMQ,
                    "RocketMQ 5.3.3, ASYNC_FLUSH; DefaultMQPullConsumer, a commit a pull",
                    partial(consumed_in_java, processes, most, _count(most, quick=quick)),
                    _BY_HAND,
                )
            ],
        )
        for processes in (1, 4)
        for most in (32, 1)
    ]


def _count(most: int, *, quick: bool) -> int:
    return (1 if most == 1 else 4) * (250 if quick else 5_000)


def _contests_with_a_kill(quick: bool) -> Sequence[Contest]:
    count = _count(1, quick=quick)
    return [
        Contest(
            f"4 processes and a kill, {most} a poll",
            [
                Contender(name, made.note, partial(killed, name, 4, most, count))
                for name, made in PEERS.items()
            ],
        )
        for most in (32, 1)
    ]


CONSUME: Final = (
    Suite(
        "consume",
        f"messages of 200 bytes taken and acknowledged; beside {LAKELOG} and SQLite by hand",
        (Column("rows_s", "messages/s"),),
        _contests,
    ),
    Suite(
        "consume_kill",
        "a process is killed after a third of the messages, and another takes its place; "
        f"{_WORK_S * 1000:.0f} ms of work a poll",
        (
            Column("rows_s", "messages/s"),
            Column("twice", "delivered twice"),
            Column("never", "never delivered"),
        ),
        _contests_with_a_kill,
    ),
)


def main(name: str, directory: str, most: str, idle_s: str, notes: str) -> None:
    """Consume, as the module says."""
    made, count, size = peer(name), 0, int(most)
    file = -1 if notes == _NO_NOTES else os.open(notes, os.O_APPEND | os.O_WRONLY)
    made.open(Path(directory))
    print(running.READY, flush=True)
    sys.stdin.readline()
    end_s = time.time()
    while True:
        found = made.take(size)
        if found:
            if file >= 0:
                os.write(file, b"".join(number.to_bytes(8, "big") for number, _ in found))
                time.sleep(_WORK_S)
            made.done(found)
            count += len(found)
            end_s = time.time()
        elif time.time() > end_s + float(idle_s):
            break
        else:
            time.sleep(0.005)
    print(json.dumps({"messages": count, "end_s": end_s}), flush=True)
    made.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
