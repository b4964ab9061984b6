"""Compares what producers and readers told with what the log holds at the end.

Every acknowledged message is there once, where that was said; what was refused is not there; of
the rest each is there at most once, and of a batch there is a beginning. In the log each producer's
messages are in its order. What a reader saw is there, at the same place, and it saw all of it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

import lakelog
from lakelog import Store
from tests.processes.asking import ASKED, PRODUCER
from tests.processes.program import UNEXPECTED
from tests.processes.reading import SAW
from tests.processes.words import JOURNALS, QUEUES, STORE, TOPIC, fault_of, key_of, lines_of, parsed

_MANY: Final = 5
_SETTLED: Final = ("acked", "late")


@attrs.define
class Told:
    """What the journals of all producers say together.

    :ivar begun: the first and last number of each call, by producer
    :ivar places: where each message is that was answered
    :ivar absent: keys of messages that are not in the log
    :ivar counts: how many messages had which outcome
    """

    begun: dict[str, list[tuple[int, int]]] = attrs.field(factory=dict)
    places: dict[str, int] = attrs.field(factory=dict)
    absent: set[str] = attrs.field(factory=set)
    counts: Counter[str] = attrs.field(factory=Counter)

    @classmethod
    def by(cls, folder: Path) -> Told:
        told = cls()
        for path in sorted((folder / JOURNALS).glob(f"{PRODUCER}*")):
            told.begun[path.name] = []
            for line in lines_of(path):
                told.add(path.name, line)
        return told

    def add(self, name: str, line: Sequence[str]) -> None:
        if line[0] not in (*_SETTLED, "begun", "refused"):
            return
        word, first, last = line[0], int(line[1]), int(line[2])
        self.counts[word] += last - first + 1
        if word == "begun":
            self.begun[name].append((first, last))
        keys = [key_of(name, number) for number in range(first, last + 1)]
        if word in _SETTLED:
            self.places.update(zip(keys, map(int, line[3:]), strict=True))
        elif word == "refused":
            self.absent.update(keys)


def check(folder: Path) -> Counter[str]:
    """Compare everything; how many messages had which outcome."""
    assert not unexpected(folder), "; ".join(unexpected(folder))
    told = Told.by(folder)
    with lakelog.open(folder / STORE, mode="read") as store:
        found = _found(store)
        _check_log(told, found)
        _check_readers(folder, found, _queues(store))
    return Counter({**told.counts, "found": len(found), "asked": _asked(folder)})


def unexpected(folder: Path) -> list[str]:
    """What no program should have met."""
    return [
        f"{path.name}: {line}"
        for path in sorted((folder / JOURNALS).iterdir())
        for line in path.read_text().splitlines()
        if line.startswith(UNEXPECTED)
    ][:_MANY]


def _found(store: Store) -> dict[str, int]:
    """Keys and places in the log's order; each message is whole, and there once."""
    found = dict[str, int]()
    for message in store.scan():
        key = str(message.properties["KEYS"])
        assert key not in found, f"{key} is at {found[key]} and at {message.physical_offset}"
        assert not fault_of(message), fault_of(message)
        found[key] = message.physical_offset
    return found


def _check_log(told: Told, found: Mapping[str, int]) -> None:
    lost = [key for key in told.places if key not in found]
    assert not lost, f"{len(lost)} acknowledged ones are lost: {lost[:_MANY]}"
    moved = [key for key in told.places if found[key] != told.places[key]]
    assert not moved, f"{len(moved)} are elsewhere: {moved[:_MANY]}"
    there = [key for key in told.absent if key in found]
    assert not there, f"{len(there)} refused ones are there: {there[:_MANY]}"
    _check_order(told, found)


def _check_order(told: Told, found: Mapping[str, int]) -> None:
    numbers: dict[str, list[int]] = {name: [] for name in told.begun}
    for name, number in map(parsed, found):
        numbers[name].append(number)
    for name, there in numbers.items():
        assert there == sorted(there), f"the messages of {name} are not in its order"
        _check_begun(name, told.begun[name], there)


def _check_begun(name: str, begun: Sequence[tuple[int, int]], there: Sequence[int]) -> None:
    """Nothing is there that nobody put, and of a call there is all, nothing, or a beginning."""
    left = set(there)
    for first, last in begun:
        here = [number in left for number in range(first, last + 1)]
        assert here == sorted(here, reverse=True), f"{name}: of {first} to {last} a part is there"
        left.difference_update(range(first, last + 1))
    assert not left, f"{name} never put {sorted(left)[:_MANY]}"


def _queues(store: Store) -> list[list[tuple[int, str]]]:
    return [
        [(each.physical_offset, str(each.properties["KEYS"])) for each in store.read(TOPIC, queue)]
        for queue in range(QUEUES)
    ]


def _check_readers(
    folder: Path, found: Mapping[str, int], queues: Sequence[Sequence[tuple[int, str]]]
) -> None:
    queued = dict(itertools.chain.from_iterable(map(_turned, queues)))
    assert queued == found, "the queues are not what the log is"
    for path in sorted((folder / JOURNALS).glob("reader*")):
        saw: list[list[tuple[int, str]]] = [[] for _ in range(QUEUES)]
        for line in lines_of(path):
            if line and line[0] == SAW:
                assert int(line[2]) == len(saw[int(line[1])]), f"{path.name}: {line}"
                saw[int(line[1])].append((int(line[3]), line[4]))
        for at, (own, queue) in enumerate(zip(saw, queues, strict=True)):
            _check_same(f"{path.name}, queue {at}", own, queue)


def _turned(queue: Sequence[tuple[int, str]]) -> list[tuple[str, int]]:
    return [(key, place) for place, key in queue]


def _check_same(
    what: str, own: Sequence[tuple[int, str]], queue: Sequence[tuple[int, str]]
) -> None:
    for at, (saw, there) in enumerate(zip(own, queue, strict=False)):
        assert saw == there, f"{what} at {at}: saw {saw}, and there is {there}"
    assert len(own) == len(queue), f"{what}: saw {len(own)} of {len(queue)}"


def _asked(folder: Path) -> int:
    return sum(
        line[:1] == [ASKED]
        for path in (folder / JOURNALS).glob("asker*")
        for line in lines_of(path)
    )
