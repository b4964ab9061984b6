"""What a survey adds up of a run of records is what one look at each of them adds up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tests.consumequeue.support import record, run
from lakelog.codec import RecordBatch
from lakelog.codec.propertyblocks import LEAST_BYTES
from lakelog.survey import Survey
from lakelog.sysflag import PREPARED

DISPATCHED = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x016,8\x02"
BODY_BYTES = 1_000


def one_after_the_other(records: list[tuple[str, int, int, int]]) -> RecordBatch:
    """Of topics, queue ids, queue offsets and system flags."""
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
            st.integers(0, 100),
            st.sampled_from([0, PREPARED]),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_each_queue_goes_on_behind_its_highest_offset(
    records: list[tuple[str, int, int, int]],
) -> None:
    found = Survey(0, 0)
    found.count(one_after_the_other(records))
    wanted: dict[tuple[str, int], int] = {}
    for topic, queue_id, queue_offset, flag in records:
        if not flag:
            queue = (topic, queue_id)
            wanted[queue] = max(wanted.get(queue, 0), queue_offset + 1)
    assert found.next_offsets == wanted


@pytest.mark.parametrize("count", [2, 2 * LEAST_BYTES // BODY_BYTES])
@pytest.mark.parametrize("text", ["", "KEYS\x01"])
@pytest.mark.parametrize("other_lengths", [1, 100])
def test_light_queues_are_found_among_few_records_and_many(
    count: int, text: str, other_lengths: int
) -> None:
    body, made, at = b"b" * BODY_BYTES, [], 0
    for number in range(count):
        properties = text.encode() + b"k" * (number % other_lengths if text else 0)
        made.append(record("t", properties, body, number, at))
        at += len(made[-1])
    made.append(record("t", DISPATCHED, body, count, at))
    found = Survey(0, 0)
    found.count(run(*made))
    assert found.next_offsets == {("t", 0): count + 1, ("%LMQ%a", 0): 7, ("%LMQ%b", 0): 9}


def test_a_body_feeds_no_light_queue() -> None:
    found = Survey(0, 0)
    found.count(run(record("t", b"", DISPATCHED)))
    assert found.next_offsets == {("t", 0): 1}
