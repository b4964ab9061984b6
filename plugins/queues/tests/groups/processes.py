"""Members in separate processes, which record each step in one file.

Each line is one ``write`` to a file opened with ``O_APPEND``, so that the file has one order of all
processes. A step is recorded before its call, except for a message that was taken.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from lakelog import Delivery, GroupConsumer, Store
from lakelog_testing.interrupting import interrupted
from plugins.queues.tests.groups.support import open_store

T = TypeVar("T")
Record: TypeAlias = tuple[str, int, int]
"""Topic, queue id and queue offset."""

_SERVER: Final = multiprocessing.get_context("forkserver")


@attrs.frozen
class Step:
    """A line of the file.

    :ivar word: ``taken``, ``begin``, ``done``, ``failed`` or ``closing``
    """

    word: str
    process: int
    record: Record | None = None
    body: int = -1
    taken_ms: int = 0
    visible_ms: int = 0


class Notes:
    """Writes the file, in one process."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def add(self, word: str, delivery: Delivery | None = None) -> None:
        step: dict[str, Any] = {"word": word, "process": os.getpid()}
        if delivery is not None:
            step |= {
                "record": [delivery.topic, delivery.queue_id, delivery.queue_offset],
                "body": int(bytes(delivery.message.body)),
                "taken_ms": delivery.taken_ms,
                "visible_ms": delivery.visible_ms,
            }
        # A kill may cut a write at the end of a page; then the next line begins anew.
        os.write(self._fd, b"\n" + json.dumps(step).encode() + b"\n")


def steps(path: Path) -> Iterator[Step]:
    """The steps so far; a line that a kill cut, or that is being written, is none."""
    for line in path.read_bytes().splitlines() if path.exists() else ():
        if not line.endswith(b"}"):
            continue
        found = json.loads(line)
        if "record" in found:
            found["record"] = tuple(found["record"])
        yield Step(**found)


def member(path: Path, notes_path: Path, options: Mapping[str, Any], seed: int) -> None:
    """Consume until killed; one message in ten fails at first, and some members leave."""
    chance, notes = random.Random(seed), Notes(notes_path)
    with open_store(path) as store:
        while True:
            with store.subscribe("g", "t", start="earliest", **options) as consumer:
                for _ in range(chance.randrange(5, 40)):
                    found = consumer.poll(chance.randrange(1, 8), wait_ms=100)
                    for each in found:
                        notes.add("taken", each)
                    for each in found:
                        notes.add("begin", each)
                        time.sleep(chance.random() * 0.04)
                        if each.attempt == 1 and chance.random() < 0.1:
                            notes.add("failed", each)
                            consumer.nack(each, 0)
                            if options.get("orderly"):
                                break
                        else:
                            notes.add("done", each)
                            consumer.ack(each)
                notes.add("closing")


_POINTS: Final = {"poll": 500, "ack": 60, "nack": 90, "commit": 500}
"""About the number of points of each call."""


@attrs.define
class Mortal:
    """Makes calls, and kills its process at a point of one of them.

    :ivar left: calls before that; after them, each has a random point, which it may not reach
    """

    chance: random.Random
    left: int

    def call(self, method: Callable[..., T], *arguments: Any) -> T:
        if self.left > 0:
            self.left -= 1
            return method(*arguments)
        found = list[T]()
        at = self.chance.randrange(_POINTS[method.__name__])
        interrupted(lambda: found.append(method(*arguments)), at, act=kill_this_process)
        return found[0]


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def mortal(path: Path, notes_path: Path, settings: Mapping[str, Any], seed: int) -> None:
    """Consume until killed at a point of a call, at the latest; one message in ten fails.

    ``begin`` is noted before the acknowledgement, ``done`` once it has returned.
    """
    chance, notes = random.Random(seed), Notes(notes_path)
    own = {"accelerator": "none"} if chance.random() < 0.5 else {}
    with open_store(path, **settings, **own) as store, dying_member(store) as consumer:
        calls = Mortal(chance, chance.randrange(30))
        while True:
            found = calls.call(consumer.poll, chance.choice([1, 1, 2, 8, 32, 64]), 100)
            for each in found:
                notes.add("taken", each)
            failed = [each for each in found if each.attempt == 1 and chance.random() < 0.1]
            for each in failed:
                notes.add("failed", each)
                calls.call(consumer.nack, each, 0)
            rest = [each for each in found if each not in failed]
            for batch in (rest[: len(rest) // 2], rest[len(rest) // 2 :]):
                for each in batch:
                    notes.add("begin", each)
                is_done = calls.call(consumer.ack, *batch)
                for each in batch if is_done else ():
                    notes.add("done", each)
            if chance.random() < 0.3:
                calls.call(consumer.commit)


def dying_member(store: Store) -> GroupConsumer:
    """A member whose messages are free when it dies, and not before."""
    return store.subscribe(
        *("g", "t"),
        start="earliest",
        invisible_ms=3_600_000,
        max_attempts=1000,
        commit_interval_ms=100,
    )


def started(*arguments: Any, target: Callable[..., None] = member) -> ForkServerProcess:
    _SERVER.set_forkserver_preload([__name__, "lakelog_queues.store", "lakelog_queues.finding.get"])
    process = _SERVER.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def check_exclusive(found: list[Step], killed: Collection[int | None], *, orderly: bool) -> None:
    """No record was taken again within its invisible time, unless its holder had given it up.

    An orderly member that returns a message gives up the later ones of its queue too, and one that
    was killed all. A time is a whole ms of the system's clock, while a lease is measured in whole
    ms of another clock.
    """
    held: dict[Record, Step] = {}
    last = {step.process: number for number, step in enumerate(found)}
    for number, step in enumerate(found):
        if step.word == "closing":
            held = {record: by for record, by in held.items() if by.process != step.process}
        elif step.word == "taken" and step.record is not None:
            before = held.get(step.record)
            is_free = before is None or step.taken_ms + 1 >= before.visible_ms
            if before is not None and before.process in killed:
                is_free = is_free or last[before.process] < number
            assert is_free, (before, step)
            held[step.record] = step
        elif step.word in ("failed", "done") and step.record is not None:
            is_more = orderly and step.word == "failed"
            for record, by in list(held.items()):
                is_later = is_more and record[:2] == step.record[:2] and record > step.record
                if by.process == step.process and (is_later or record == step.record):
                    del held[record]


def check_acknowledged(found: list[Step]) -> None:
    """No record was taken after its acknowledgement had returned."""
    done = set[Record]()
    for step in found:
        if step.record is not None:
            assert step.word != "taken" or step.record not in done, step
            if step.word == "done":
                done.add(step.record)


def check_order(found: list[Step]) -> None:
    """No message of a queue was begun before each earlier one was done."""
    done: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for step in found:
        if step.record is not None:
            topic, queue, offset = step.record
            finished = done[topic, queue]
            if step.word == "begin":
                assert finished.issuperset(range(offset)), step
            elif step.word == "done":
                finished.add(offset)
