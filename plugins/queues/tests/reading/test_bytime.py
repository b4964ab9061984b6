"""Queue offsets by time, against a list that is searched from end to end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tests.store.support import open_small, read_small
from lakelog_queues.finding.records import PlacedRecords
from lakelog_queues.finding.search import TimeSearch
from plugins.queues.tests.reading.support import QueuesInMemory, put_numbered, times_of

pytestmark = pytest.mark.both_ways

QUEUE = ("t", 0)


class Times(PlacedRecords):
    """Store times by physical offset; ``None`` for a record that cannot be read."""

    def __init__(self, times: list[int | None]) -> None:
        object.__setattr__(self, "_times", times)

    def store_time_ms(self, offset: int, size: int) -> int | None:
        times: list[int | None] = self._times  # type: ignore[attr-defined]  # set without attrs
        return times[offset]


def search_of(times: list[int | None], first: int = 0) -> TimeSearch:
    queues = QueuesInMemory()
    queues.of[QUEUE] = [(first + at, at, 100, 0, 1) for at in range(len(times))]
    return TimeSearch(queues, Times(times), lambda: 0)


@given(
    times=st.lists(st.one_of(st.none(), st.integers(0, 12)), max_size=20),
    first=st.integers(0, 3),
    wanted=st.integers(0, 13),
)
def test_it_agrees_with_a_search_from_end_to_end(
    times: list[int | None], first: int, wanted: int
) -> None:
    rising = iter(sorted(each for each in times if each is not None))
    times = [None if each is None else next(rising) for each in times]
    search = search_of(times, first)
    known = [(first + at, each) for at, each in enumerate(times) if each is not None]
    start, end = (first, first + len(times)) if times else (0, 0)
    lower = min((at for at, each in known if each >= wanted), default=end)
    upper = max((at for at, each in known if each <= wanted), default=start)
    assert search.offset_by_time(*QUEUE, wanted) == lower
    assert search.offset_by_time(*QUEUE, wanted, "upper") == upper
    assert search.earliest_time(*QUEUE) == (known[0][1] if known else None)


def test_long_queues_are_searched_by_single_units_first() -> None:
    times: list[int | None] = [None if at % 7 == 0 else at // 3 for at in range(9_000)]
    search = search_of(times, first=5)
    for wanted in (0, 1, 1234, 1365, 1366, 2998, 2999, 3000):
        known = [(5 + at, each) for at, each in enumerate(times) if each is not None]
        lower = min((at for at, each in known if each >= wanted), default=9_005)
        assert search.offset_by_time(*QUEUE, wanted) == lower


def test_batches_are_found_by_their_first_message() -> None:
    queues = QueuesInMemory("BatchCQ")
    queues.of[QUEUE] = [(3 * at, at, 100, 0, 3) for at in range(20)]
    search = TimeSearch(queues, Times(list(range(20))), lambda: 0)
    for wanted in range(20):
        assert search.offset_by_time(*QUEUE, wanted) == 3 * wanted
        assert search.offset_by_time(*QUEUE, wanted, "upper") == 3 * wanted
    assert search.offset_by_time(*QUEUE, 20) == 60


def test_bounds_and_bad_arguments() -> None:
    search = search_of([5, 5, 7])
    assert search.offset_by_time("unknown", 0, 5) == 0
    assert search.earliest_time("unknown", 0) is None
    with pytest.raises(ValueError, match="'middle' is unknown"):
        search.offset_by_time("t", 0, 5, "middle")  # type: ignore[arg-type]  # a wrong word is the test
    with pytest.raises(ValueError, match="queue_id is -1"):
        search.offset_by_time("t", -1, 5)


@pytest.mark.parametrize("mode", ["owner", "read"])
def test_on_a_real_store(tmp_path: Path, mode: str) -> None:
    queues = QueuesInMemory()
    with open_small(tmp_path / "s") as store:
        put_numbered(store, 120, born_host="[::1]:5")
        queues.take_in(store)
        times = np.array([each.store_timestamp_ms for each in store.scan()])
        with read_small(tmp_path / "s", segment_size_bytes=16 << 10) as reader:
            search = times_of(store if mode == "owner" else reader, queues)
            for wanted in {*times.tolist(), max(int(times[0]) - 1, 0), int(times[-1]) + 1}:
                assert search.offset_by_time(*QUEUE, wanted) == np.searchsorted(times, wanted)
            assert search.earliest_time(*QUEUE) == times[0]
            gone = QueuesInMemory()
            gone.of[QUEUE] = [(0, 1 << 40, 100, 0, 1), (1, 0, 100, 0, 1), (2, 5, 3, 0, 1)]
            assert times_of(reader, gone).earliest_time(*QUEUE) is None
