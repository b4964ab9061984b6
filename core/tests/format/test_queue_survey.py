"""The survey of a run of records equals the sum of its records."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tests.format.handmade import record, run
from lakelog.format.layout import PREPARED
from lakelog.format.queue_survey import QueueOffsetSurvey
from lakelog.format.record_batch import RecordBatch

pytestmark = pytest.mark.both_ways

DISPATCHED = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x016,8\x02"
BODY_BYTES = 1_000
WINDOW_BYTES = 1 << 16


def one_after_the_other(records: list[tuple[str, int, int, int]]) -> RecordBatch:
    """Records from their topics, queue ids, queue offsets and system flags."""
    made: list[bytes] = []
    for topic, queue_id, queue_offset, flag in records:
        at = sum(map(len, made))
        made.append(record(topic, b"", b"b", queue_offset, at, flag, queue_id))
    return run(*made)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "eightchr", "a longer one"]),
            st.integers(0, 3),
            st.sampled_from([0, 0, 0, 1, 7]),
            st.sampled_from([0, PREPARED]),
        ),
        min_size=1,
        max_size=30,
    ),
    st.integers(0, 30),
)
def test_each_queue_goes_on_behind_its_highest_offset(
    records: list[tuple[str, int, int, int]], cut: int
) -> None:
    wanted: dict[tuple[str, int], int] = {}
    made = []
    for topic, queue_id, back, flag in records:
        queue_offset = max(0, wanted.get((topic, queue_id), 0) - back)
        made.append((topic, queue_id, queue_offset, flag))
        if not flag:
            queue = (topic, queue_id)
            wanted[queue] = max(wanted.get(queue, 0), queue_offset + 1)
    batch = one_after_the_other(made)
    found = QueueOffsetSurvey(0, 0)
    for part in (batch[:cut], batch[cut:]):
        if len(part):
            found.count(part)
    assert found.next_offsets == wanted


FAR = 1 << 40
LONE_FLIPS = [0, 1, 5, 8, 9]


def surveyed(offsets: list[int], cuts: list[int], *, joined: bool) -> QueueOffsetSurvey:
    """The survey of one queue, read in parts; with ``joined``, of joined surveys."""
    batch = one_after_the_other([("a", 0, each, 0) for each in offsets])
    found = QueueOffsetSurvey(0, 0)
    for first, end in pairwise([0, *cuts, len(offsets)]):
        part = batch[first:end]
        if joined:
            other = QueueOffsetSurvey(0, 0)
            other.count(part)
            found.join(other)
        elif len(part):
            found.count(part)
    return found


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("cuts", [[], [5], [6], [1, 5, 6], [2, 4, 6, 8]])
def test_one_record_that_states_what_cannot_be_raises_nothing(
    cuts: list[int], joined: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for at, wrong in product(LONE_FLIPS, (FAR, -1 << 63, -1, 40)):
        caplog.clear()
        offsets = [number if number != at else wrong for number in range(10)]
        found = surveyed(offsets, cuts, joined=joined)
        found.settle(("a", 0), 10, found.end_offset)
        found.log_doubtful_offsets()
        assert found.next_offsets == {("a", 0): 10}, (at, wrong)
        assert "has an impossible queue offset" in caplog.text, (at, wrong)


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("cuts", [[], [5], [6], [1, 5, 6], [7]])
def test_a_jump_that_the_queue_goes_on_with_is_one(cuts: list[int], joined: bool) -> None:
    offsets = [0, 1, 2, 3, 4, 5, FAR, FAR + 1, FAR + 2]
    assert surveyed(offsets, cuts, joined=joined).next_offsets == {("a", 0): FAR + 3}


@pytest.mark.parametrize(
    ("first", "settled", "then"),
    [(5000, None, 5001), (FAR, (151, 200), 151), (FAR, (150, 0), 151)],
    ids=["no front", "units reach further", "units end before"],
)
def test_where_one_record_alone_tells(
    first: int, settled: tuple[int, int] | None, then: int
) -> None:
    found = surveyed([first], [], joined=False)
    if settled is not None:
        found.settle(("a", 0), *settled)
    found.log_doubtful_offsets()
    assert found.next_offsets == {("a", 0): then}


@pytest.mark.parametrize("count", [2, 2 * WINDOW_BYTES // BODY_BYTES])
@pytest.mark.parametrize("text", ["", "KEYS\x01"])
@pytest.mark.parametrize("other_lengths", [1, 100])
def test_light_queues_are_found_among_few_records_and_many(
    count: int, text: str, other_lengths: int
) -> None:
    """A body that looks like the property feeds none."""
    body, made, at = DISPATCHED.ljust(BODY_BYTES, b"b"), [], 0
    for number in range(count):
        properties = text.encode() + b"k" * (number % other_lengths if text else 0)
        made.append(record("t", properties, body, number, at))
        at += len(made[-1])
    made.append(record("t", DISPATCHED, body, count, at))
    found = QueueOffsetSurvey(0, 0)
    found.count(run(*made))
    assert found.next_offsets == {("t", 0): count + 1, ("%LMQ%a", 0): 7, ("%LMQ%b", 0): 9}
