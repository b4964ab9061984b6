"""Producers that put as fast as they can."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
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
