"""Producers that put as fast as they can, and what their keys tell of what a store has lost."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog import PutResult, PutStatus, Store
from tests.faults.workload import Tell, message_of, opened

SINGLES: Final = 5
BATCH: Final = 7
IN_FLIGHT: Final = 8


def put_under_load(path: Path, settings: Mapping[str, Any], run: str, tell: Tell) -> None:
    """Open, and put from eight threads until the process is killed; none of it may fail."""
    store = opened(path, settings, tell)
    if store is None:
        return
    tell({"opened": True})
    ways = [*[_one_by_one] * SINGLES, _in_batches, _in_batches, _in_background]
    with ThreadPoolExecutor(len(ways)) as pool:
        for each in [
            pool.submit(way, _Producer(store, tell, f"{run}-p{at}")) for at, way in enumerate(ways)
        ]:
            each.result()


@attrs.frozen
class _Producer:
    """Numbers its messages from 0 on.

    :ivar name: what its keys begin with
    """

    store: Store
    tell: Tell
    name: str

    def numbered(self) -> Iterator[str]:
        return (f"{self.name}-{number}" for number in itertools.count())

    def answered(self, key: str, result: PutResult) -> None:
        assert result.status is PutStatus.PUT_OK
        flushed = self.store.flushed_offset
        self.tell(
            {"ack": key, "at": result.physical_offset, "end": result.end_offset, "flushed": flushed}
        )


def _one_by_one(producer: _Producer) -> None:
    for key in producer.numbered():
        producer.answered(key, producer.store.put(message_of(key)))


def _in_batches(producer: _Producer) -> None:
    keys = producer.numbered()
    while batch := list(itertools.islice(keys, BATCH)):
        results = producer.store.put_batch([message_of(key) for key in batch])
        for key, result in zip(batch, results, strict=True):
            producer.answered(key, result)


def _in_background(producer: _Producer) -> None:
    flying = list[tuple[str, Future[PutResult]]]()
    for key in producer.numbered():
        flying.append((key, producer.store.put_async(message_of(key))))
        if len(flying) == IN_FLIGHT:
            first, future = flying.pop(0)
            producer.answered(first, future.result(30))


@attrs.frozen
class Answers:
    """Where all messages were put that were acknowledged, round after round, and which must stay.

    :ivar places: where each acknowledged one was put
    :ivar must: those that must be there
    """

    places: dict[str, int] = attrs.field(factory=dict)
    must: set[str] = attrs.field(factory=set)

    def add(self, acks: Iterable[Mapping[str, Any]], kept: Iterable[str]) -> None:
        """What one more round told."""
        self.places.update((ack["ack"], ack["at"]) for ack in acks)
        self.must.update(kept)

    def check(self, found: Mapping[str, int]) -> None:
        """Compare with keys and their places as a reader sees them, in the log's order.

        What was acknowledged stands where that was said. Of each producer there is a run without
        a gap, in order, that ends at most as far behind its last answer as it puts ahead.
        """
        assert self.must - set(found) == set()
        assert {key for key in found if self.places.get(key, found[key]) != found[key]} == set()
        answered = _last_of(self.places)
        ends = dict[str, int]()
        for name, number in map(_parsed, found):
            assert number == ends.get(name, -1) + 1, f"{name}-{number} behind {ends.get(name)}"
            ends[name] = number
        ahead = {name for name in ends if ends[name] > answered.get(name, -1) + IN_FLIGHT}
        assert ahead == set(), "nobody put so much"


def _parsed(key: str) -> tuple[str, int]:
    name, _, number = key.rpartition("-")
    return name, int(number)


def _last_of(keys: Iterable[str]) -> dict[str, int]:
    last = dict[str, int]()
    for name, number in map(_parsed, keys):
        last[name] = max(number, last.get(name, -1))
    return last
