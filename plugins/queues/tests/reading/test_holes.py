"""A queue with empty places in its middle, more of them than one call looks at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.tests.store.support import open_small
from lakelog import Store
from lakelog.format.queue_offsets import Queue
from lakelog.format.units import Units
from plugins.queues.tests.reading.support import QueuesInMemory, getter_of, put_numbered, times_of

QUEUE = ("t", 0)
HOLE = 5000


class HoledQueues(QueuesInMemory):
    """The first 20 units, a hole, then the others; a read in the hole goes on behind it."""

    def take_in(self, store: Store) -> None:
        super().take_in(store)
        units = self.of[QUEUE]
        self.of[QUEUE] = units[:20] + [(unit[0] + HOLE, *unit[1:]) for unit in units[20:]]

    def units(self, queue: Queue, first: int, count: int) -> Units:
        there = [unit[0] for unit in self.of[queue] if unit[0] >= first]
        return super().units(queue, there[0] if there else first, count)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_small(tmp_path / "s") as store:
        put_numbered(store, 60)
        yield store


@pytest.mark.parametrize("count", [1, 7, 32, 100])
@pytest.mark.parametrize("tags", [None, "*"])
def test_everything_is_read_once_and_in_order(store: Store, count: int, tags: str | None) -> None:
    queues = HoledQueues()
    queues.take_in(store)
    getter, at, found = getter_of(store, queues), 0, []
    for _ in range(200):
        result = getter.get("t", 0, at, count, tags=tags)
        found += [int(each.body[:6]) for each in result.messages]
        if result.next_offset == at:
            break
        assert result.messages
        at = result.next_offset
    assert found == list(range(60))
    assert at == 60 + HOLE


@pytest.mark.parametrize("first", [20, 21, 3000, HOLE + 19, HOLE + 20])
def test_a_get_in_the_hole_goes_on_behind_it(store: Store, first: int) -> None:
    queues = HoledQueues()
    queues.take_in(store)
    result = getter_of(store, queues).get("t", 0, first, 2)
    assert [each.body[:6] for each in result.messages] == [b"000020", b"000021"]
    assert result.next_offset == HOLE + 22


def test_a_search_by_time_passes_over_it(store: Store) -> None:
    queues = HoledQueues()
    queues.take_in(store)
    times = times_of(store, queues)
    stored = [each.store_timestamp_ms for each in store.scan()]
    assert times.offset_by_time("t", 0, stored[0]) == 0
    assert times.offset_by_time("t", 0, stored[-1] + 1) == 60 + HOLE
    for ms in set(stored):
        first = stored.index(ms)
        assert times.offset_by_time("t", 0, ms) == first + HOLE * (first >= 20)
