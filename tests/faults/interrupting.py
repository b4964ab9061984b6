"""Operations of a store, each of which is interrupted at its points, in roles and strategies.

``python -m tests.faults.interrupting [NAME ...]`` interrupts them at all points, and prints what is
wrong; a name is a part of ``put-inline-owner-native`` and the like.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

import lakelog
from lakelog import Store
from lakelog_testing import check_interrupted
from lakelog_testing.interrupted_stores import TOPIC, Interruptions, Operation, Trial
from lakelog_testing.interrupting import PACKAGES

SEGMENT: Final = 16 << 10
WAITS: Final = ("threading", "concurrent")
"""Packages of the standard library with whose functions lakelog waits: their points count, too."""


def _open(trial: Trial) -> Callable[[], object]:
    trial.close()
    return trial.open


def _close(trial: Trial) -> Callable[[], object]:
    trial.open()
    return trial.close


def _open_and_put(trial: Trial) -> Callable[[], object]:
    trial.close()
    [message] = trial.messages(1)
    return lambda: trial.store.put(message)


def _put(trial: Trial) -> Callable[[], object]:
    store, [message] = trial.store, trial.messages(1)
    return lambda: store.put(message)


def _put_async(trial: Trial) -> Callable[[], object]:
    store, [message] = trial.store, trial.messages(1)
    return lambda: store.put_async(message).result()


def _put_batch(trial: Trial) -> Callable[[], object]:
    store, messages = trial.store, trial.messages(3)
    return lambda: store.put_batch(messages)


def _put_batch_async(trial: Trial) -> Callable[[], object]:
    store, messages = trial.store, trial.messages(3)
    return lambda: store.put_batch_async(messages).result()


def _roll(trial: Trial) -> Callable[[], object]:
    """Put a message that the present segment has no room for."""
    store, [message] = trial.store, trial.messages(1, SEGMENT * 3 // 4)
    return lambda: store.put(message)


def _flush(trial: Trial) -> Callable[[], object]:
    store, [message] = trial.store, trial.messages(1)

    def work() -> None:
        store.put_async(message)
        store.flush()

    return work


def _wait_dispatched(trial: Trial) -> Callable[[], object]:
    store, [message] = trial.store, trial.messages(1)

    def work() -> None:
        end = store.put(message).end_offset
        assert store.wait_dispatched(end)

    return work


def _seen(trial: Trial) -> Store:
    store = trial.store
    if not store.read_only:
        store.put(trial.messages(1)[0])
        trial.returned()
    store.wait_dispatched(store.max_offset)
    return store


def _get(trial: Trial) -> Callable[[], object]:
    store = _seen(trial)
    return lambda: store.get(TOPIC, 0, 0)


def _get_waiting(trial: Trial) -> Callable[[], object]:
    store = _seen(trial)
    bounds = store.queue_bounds(TOPIC, 0)
    assert bounds is not None
    return lambda: store.get(TOPIC, 0, bounds[1], wait_ms=5)


def _scan(trial: Trial) -> Callable[[], object]:
    store = _seen(trial)
    return lambda: list(store.scan())


def _query(trial: Trial) -> Callable[[], object]:
    store = _seen(trial)
    key = next(iter(store.scan())).keys[0]
    return lambda: store.query(TOPIC, key)


def _commit_offsets(trial: Trial) -> Callable[[], object]:
    store = trial.store
    return lambda: store.commit_offsets([("g", TOPIC, {0: 1})])


def _consumer(trial: Trial) -> Callable[[], object]:
    store = _seen(trial)

    def work() -> None:
        with store.consumer("c", TOPIC, start="earliest") as consumer:
            consumer.poll()
            consumer.commit()

    return work


def _subscribe(trial: Trial) -> Callable[[], object]:
    """Join and leave a group."""
    store = trial.store

    def work() -> None:
        with store.subscribe("s", TOPIC):
            pass

    return work


def _of_group(call: Callable[[Any, Any], object], **options: Any) -> Operation:
    """A member joins, polls, does something with what it got, and leaves."""

    def prepare(trial: Trial) -> Callable[[], object]:
        store = _seen(trial)
        given = {"start": "earliest", "max_attempts": 10_000, **options}

        def work() -> None:
            with store.subscribe("g", TOPIC, **given) as member:
                call(member, member.poll(wait_ms=10))

        return work

    return prepare


def _commit(member: Any, found: Any) -> None:
    member.ack(*found)
    member.commit()


PUTTING: Final[dict[str, Operation]] = {
    "put": _put,
    "put_async": _put_async,
    "put_batch": _put_batch,
    "put_batch_async": _put_batch_async,
    "roll": _roll,
    "flush": _flush,
    "wait_dispatched": _wait_dispatched,
    "commit_offsets": _commit_offsets,
    "consumer": _consumer,
    "subscribe": _subscribe,
}
READING: Final[dict[str, Operation]] = {
    "open": _open,
    "close": _close,
    "get": _get,
    "get_waiting": _get_waiting,
    "scan": _scan,
    "query": _query,
}
GROUPS: Final[dict[str, Operation]] = {
    "poll": _of_group(lambda *_: None),
    "ack": _of_group(lambda member, found: [member.ack(each) for each in found]),
    "nack": _of_group(lambda member, found: [member.nack(each, 3_600_000) for each in found]),
    "nack_in_order": _of_group(lambda member, found: member.nack(found[0], 0), orderly=True),
    "commit": _of_group(_commit),
}
"""What becomes of the messages is checked by the tests of groups; here, what stays locked."""
FLUSHES: Final = ("inline", "group-commit", "timed", "none")
ROLES: Final = ("owner", "first", "member", "reader")
"""The only process; one of two that has the services; one that has them not; a reader of one."""


@attrs.frozen
class Case:
    """One of the matrix.

    :ivar is_plain: whether it runs without compiled code
    """

    operation: str
    flush: str
    role: str
    is_plain: bool

    def __str__(self) -> str:
        way = "plain" if self.is_plain else "native"
        return f"{self.operation}-{self.flush}-{self.role}-{way}"

    def run(self, folder: Path, choose: Callable[[Sequence[int]], Sequence[int]]) -> Interruptions:
        settings: dict[str, Any] = {
            "flush": self.flush,
            "segment_size_bytes": SEGMENT,
            "preallocate": False,
        }
        if self.is_plain:
            settings["accelerator"] = "none"
        never: dict[str, Any] = {"attach": {"take_over": False}}

        # Without `**`: behind such a call Python 3.11 looks for signals, and the store is lost.
        def opener(path: Path) -> Store:
            return lakelog.open(path, settings=settings)

        def reader(path: Path) -> Store:
            return lakelog.open(path, mode="read")

        def other(path: Path) -> Store:
            return lakelog.open(path, settings=settings | never)

        beside = {"owner": None, "first": other, "member": opener, "reader": opener}[self.role]
        return check_interrupted(
            reader if self.role == "reader" else opener,
            {**PUTTING, **READING, **GROUPS}[self.operation],
            folder,
            choose=choose,
            beside=beside,
            beside_first=self.role != "first",
            packages=(*PACKAGES, *WAITS),
        )


def matrix(operations: Sequence[str] = (*PUTTING, *READING)) -> list[Case]:
    """All cases; a reader reads, and the flush strategy plays no part in it."""
    return [
        Case(operation, flush, role, is_plain)
        for operation in operations
        for role in ROLES
        for flush in FLUSHES
        for is_plain in (False, True)
        if role != "reader" or (operation in READING and flush == "group-commit")
    ]


def main() -> None:
    """Interrupt at all points; ``--every N`` takes each N-th one."""
    words = sys.argv[1:]
    stride = int(words.pop(words.index("--every") + 1)) if "--every" in words else 1
    names = [each for each in words if each != "--every"]
    total = failed = 0
    for case in matrix((*PUTTING, *READING, *GROUPS)):
        if not any(each in str(case) for each in names or ("",)):
            continue
        with tempfile.TemporaryDirectory() as folder:
            begin = time.monotonic()
            with suppress(KeyboardInterrupt):
                found = case.run(Path(folder), lambda numbers: numbers[::stride])
        total, failed = total + found.cases, failed + len(found.violations)
        print(f"{case}: {found}, {time.monotonic() - begin:.1f} s", flush=True)  # noqa: T201  # the result of the command
        for each in found.violations:
            print(f"  {case}: {each}", flush=True)  # noqa: T201  # the result of the command
    print(f"{total} interruptions, {failed} violations")  # noqa: T201  # the result of the command
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
