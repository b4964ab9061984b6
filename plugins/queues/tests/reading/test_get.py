"""Every status of a get, tags, limits, segments, damage, and columns."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.tests.store.support import open_small, overwrite, read_small
from lakelog import Message, Store
from lakelog.format.queue_offsets import Queue, Units
from lakelog.format.record import SECTOR_BYTES
from lakelog_queues.finding.get import MOST_BYTES, QueueGetter
from lakelog_queues.finding.results import GetResult, GetStatus
from plugins.queues.tests.arrow.test_columns import row_of, rows_of
from plugins.queues.tests.reading.support import QueuesInMemory, getter_of, put_numbered

pytestmark = pytest.mark.both_ways

COUNT = 200
S = GetStatus


@pytest.fixture
def queues() -> QueuesInMemory:
    return QueuesInMemory()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Three segments of one queue."""
    with open_small(tmp_path / "s") as store:
        put_numbered(store, COUNT)
        yield store


@pytest.fixture
def getter(store: Store, queues: QueuesInMemory) -> QueueGetter:
    queues.take_in(store)
    return getter_of(store, queues)


def numbers(result: GetResult) -> list[int]:
    return [int(each.body[:6]) for each in result.messages]


def told(result: GetResult) -> tuple[GetStatus, int, int, int]:
    return result.status, result.next_offset, result.min_offset, result.max_offset


# --- statuses ---


def test_each_status(getter: QueueGetter, queues: QueuesInMemory) -> None:
    result = getter.get("t", 0, 5)
    assert numbers(result) == list(range(5, 37))
    assert told(result) == (S.FOUND, 37, 0, COUNT)
    assert told(getter.get("t", 0, -1)) == (S.OFFSET_TOO_SMALL, 0, 0, COUNT)
    assert told(getter.get("t", 0, COUNT)) == (S.OFFSET_OVERFLOW_ONE, COUNT, 0, COUNT)
    assert told(getter.get("t", 0, COUNT + 1)) == (S.OFFSET_OVERFLOW_BADLY, COUNT, 0, COUNT)
    assert told(getter.get("other", 0, 7)) == (S.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
    assert told(getter.get("t", 1, 7)) == (S.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
    queues.of["t", 3] = []
    assert told(getter.get("t", 3, 7)) == (S.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    queues.unreadable.add(("t", 0))
    assert told(getter.get("t", 0, 7)) == (S.OFFSET_FOUND_NULL, 300_000, 0, COUNT)


def test_what_is_gone_is_being_removed(
    store: Store, queues: QueuesInMemory, tmp_path: Path
) -> None:
    queues.take_in(store)
    store.close()
    sorted((tmp_path / "s" / "commitlog").iterdir())[0].unlink()
    with read_small(tmp_path / "s", segment_size_bytes=16 << 10) as left:
        minimum = left.min_offset
        gone = sum(unit[1] < minimum for unit in queues.of["t", 0])
        assert 0 < gone < COUNT
        late = QueueGetter(queues, left._reader, lambda: 0)  # deleted after the bounds were read
        assert numbers(late.get("t", 0, 0)) == list(range(gone, gone + 32))
        del queues.of["t", 0][gone:]
        assert told(late.get("t", 0, 3)) == (S.MESSAGE_WAS_REMOVING, gone, 0, gone)


# --- limits ---


def test_max_bytes_bounds_the_records_but_one_is_given(getter: QueueGetter) -> None:
    size = getter.get("t", 0, 0, 1).messages[0].size
    assert numbers(getter.get("t", 0, 3, max_bytes=3 * size)) == [3, 4, 5]
    assert numbers(getter.get("t", 0, 3, max_bytes=3 * size - 1)) == [3, 4]
    assert numbers(getter.get("t", 0, 3, max_bytes=0)) == [3]
    assert getter.get("t", 0, 3, max_bytes=3 * size).next_offset == 6
    assert len(getter.get("t", 0, 0, 999, max_bytes=2 * MOST_BYTES).messages) == COUNT


def test_sparse_records_are_read_one_by_one_from_files(
    tmp_path: Path, queues: QueuesInMemory
) -> None:
    with open_small(tmp_path / "s", segment_size_bytes=1 << 20) as store:
        for number in range(5):
            store.put(Message("rare", b"%d" % number, queue_id=0))
            store.put(Message("often", b"." * 90_000, queue_id=0))
        queues.take_in(store)
    with read_small(tmp_path / "s", segment_size_bytes=1 << 20) as reader:
        result = getter_of(reader, queues).get("rare", 0, 0)
    assert [each.body for each in result.messages] == [b"0", b"1", b"2", b"3", b"4"]


def test_units_out_of_order_or_of_no_record_go_the_long_way(
    store: Store, queues: QueuesInMemory
) -> None:
    queues.take_in(store)
    getter = getter_of(store, queues)
    units = queues.of["t", 0][:4]
    queues.of["t", 0] = [(at, *units[3 - at][1:]) for at in range(4)]
    assert numbers(getter.get("t", 0, 0)) == [3, 2, 1, 0]
    queues.of["t", 0] = [units[0], (1, 5, 90, 0, 1), (2, 1 << 40, 200, 0, 1), units[3]]
    assert numbers(getter.get("t", 0, 0)) == [0, 3]
    queues.of["t", 0] = [units[0], (1, *units[1][1:4], 2)]
    assert told(getter.get("t", 0, 0)) == (S.FOUND, 3, 0, 3)


# --- tags ---


@pytest.fixture
def tagged(tmp_path: Path, queues: QueuesInMemory) -> Iterator[QueueGetter]:
    """``Aa`` and ``BB`` have one hash."""
    with open_small(tmp_path / "tagged") as store:
        for number, tag in enumerate(["Aa", "BB", None, "C", "BB", "Aa"]):
            store.put(Message("t", b"%06d" % number, tags=tag, queue_id=0))
        queues.take_in(store)
        yield getter_of(store, queues)


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("Aa", [0, 5]),
        ("BB", [1, 4]),
        (" BB || C ", [1, 3, 4]),
        ("*", [0, 1, 2, 3, 4, 5]),
        ("", [0, 1, 2, 3, 4, 5]),
        (None, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_tags_that_share_a_hash(tagged: QueueGetter, tags: str | None, found: list[int]) -> None:
    result = tagged.get("t", 0, 0, tags=tags)
    assert numbers(result) == found
    assert (result.status, result.next_offset) == (S.FOUND, 6)
    columns = tagged.get_columns("t", 0, 0, tags=tags, columns=["body"])
    assert [int(each[:6]) for each in columns.batch["body"].to_pylist()] == found


def test_what_stands_behind_the_tags_that_match(
    tagged: QueueGetter, queues: QueuesInMemory
) -> None:
    """The next offset; where the hash alone is equal; and where the code is a place in a file."""
    assert told(tagged.get("t", 0, 0, 1, tags="BB")) == (S.FOUND, 2, 0, 6)
    assert told(tagged.get("t", 0, 1, 1, tags="Aa")) == (S.FOUND, 6, 0, 6)
    assert told(tagged.get("t", 0, 0, tags="D")) == (S.NO_MATCHED_MESSAGE, 6, 0, 6)
    queues.of["t", 0] = [(*unit[:3], -(1 << 31) - 1, 1) for unit in queues.of["t", 0]]
    assert numbers(tagged.get("t", 0, 0, tags="C")) == [3]


def test_a_rare_tag_ends_after_800_units(queues: QueuesInMemory, getter: QueueGetter) -> None:
    queues.of["t", 0] = [(at, 0, 100, 7, 1) for at in range(2000)]
    assert told(getter.get("t", 0, 100, tags="x")) == (S.NO_MATCHED_MESSAGE, 900, 0, 2000)
    assert getter.get("t", 0, 100, 1500, tags="x").next_offset == 1600


def test_in_the_schedule_topic_the_code_is_a_time(tmp_path: Path, queues: QueuesInMemory) -> None:
    topic = "SCHEDULE_TOPIC_XXXX"
    with open_small(tmp_path / "s") as store:
        for tag in ("x", "y"):
            store.put(Message(topic, b"", tags=tag, queue_id=0))
        queues.take_in(store)
        queues.of[topic, 0] = [(*unit[:3], 1_700_000_000_000, 1) for unit in queues.of[topic, 0]]
        found = getter_of(store, queues).get(topic, 0, 0, tags="y").messages
    assert [each.tags for each in found] == ["y"]


# --- corrupt units and records ---


def test_corrupt_units_are_passed_over_and_are_one_line_of_the_log(
    getter: QueueGetter, queues: QueuesInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    units = queues.of["t", 0]
    for at, place in zip((10, 11, 14), ((1 << 40, 300), (-5, 300), (1, 300)), strict=True):
        units[at] = (at, *place, 0, 1)
    with caplog.at_level(logging.WARNING, "lakelog"):
        result = getter.get("t", 0, 8, 6)
    assert numbers(result) == [8, 9, 12, 13, 15, 16]
    assert result.next_offset == 17
    (line,) = caplog.messages
    assert "queue offset 10 leads to no whole record" in line
    assert line.endswith("skipped, and 2 more up to 14")
    units[10:] = [(10, 0, 0, 0, 1), (11, 0, -7, 0, 1)]
    assert told(getter.get("t", 0, 10)) == (S.MESSAGE_WAS_REMOVING, 12, 0, 12)


@pytest.mark.parametrize("mode", ["owner", "read"])
def test_a_damaged_record_is_passed_over(
    store: Store,
    queues: QueuesInMemory,
    tmp_path: Path,
    mode: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    queues.take_in(store)
    overwrite(tmp_path / "s", queues.of["t", 0][20][1] + 100, b"?")
    with read_small(tmp_path / "s", segment_size_bytes=16 << 10) as reader:
        getter = getter_of(store if mode == "owner" else reader, queues)
        with caplog.at_level(logging.WARNING, "lakelog"):
            result = getter.get("t", 0, 18, 5)
        assert numbers(result) == [18, 19, 21, 22, 23]
        assert "queue offset 20 leads" in caplog.text
        for verify, found in ((True, [18, 19, 21, 22, 23]), (False, [18, 19, 20, 21, 22])):
            columns = getter.get_columns("t", 0, 18, 5, columns=["queue_offset"], verify=verify)
            assert columns.batch["queue_offset"].to_pylist() == found
            assert columns.next_offset == found[-1] + 1


def test_a_unit_of_an_absurd_size_ends_one_call_and_is_passed_over_by_the_next(
    getter: QueueGetter, queues: QueuesInMemory
) -> None:
    queues.of["t", 0][10] = (10, 0, 2**31 - 1, 0, 1)
    first = getter.get("t", 0, 8, 4)
    assert (numbers(first), first.next_offset) == ([8, 9], 10)
    assert numbers(getter.get("t", 0, 10, 3)) == [11, 12, 13]


# --- columns ---


class HoledQueues(QueuesInMemory):
    """The first 20 units, a hole, then the others; a read in the hole continues after it."""

    def take_in(self, store: Store) -> None:
        super().take_in(store)
        units = self.of["t", 0]
        self.of["t", 0] = units[:20] + [(unit[0] + 5000, *unit[1:]) for unit in units[20:]]

    def units(self, queue: Queue, first: int, count: int) -> Units:
        there = [unit[0] for unit in self.of[queue] if unit[0] >= first]
        return super().units(queue, there[0] if there else first, count)


@pytest.mark.parametrize("tags", [None, "*"])
def test_a_hole_longer_than_one_call_examines_is_passed_over(
    store: Store, tags: str | None
) -> None:
    queues = HoledQueues()
    queues.take_in(store)
    getter = getter_of(store, queues)
    for count in (7, 32):
        at, found = 0, list[int]()
        while (result := getter.get("t", 0, at, count, tags=tags)).messages:
            found += numbers(result)
            at = result.next_offset
        assert (found, at) == (list(range(COUNT)), COUNT + 5000)
    for first in (20, 3000, 5020):
        assert numbers(getter.get("t", 0, first, 2)) == [20, 21]


def test_a_record_that_lost_a_sector_is_passed_over(tmp_path: Path, queues: QueuesInMemory) -> None:
    """Where sectors begin in the log, and not in the buffer of a read; zeros may also be meant."""
    zeros = {"a\x00": "\x00", "zeros": "\x00" * (SECTOR_BYTES - 1), "long": "x" * 2000}
    with open_small(tmp_path / "l") as store:
        for number in range(6):
            body = b"%06d" % number + bytes(300 + 7 * number)
            store.put(Message("t", body, properties=zeros, keys=["some", "key"], queue_id=0))
        queues.take_in(store)
    with read_small(tmp_path / "l", segment_size_bytes=16 << 10) as reader:
        getter = getter_of(reader, queues)
        assert numbers(getter.get("t", 0, 0)) == list(range(6))
        for at in (1, 4):
            _, offset, size, *_ = queues.of["t", 0][at]
            last = (offset + size) // SECTOR_BYTES * SECTOR_BYTES
            if at == 1:
                overwrite(tmp_path / "l", last, bytes(offset + size - last))
            else:
                overwrite(tmp_path / "l", last - SECTOR_BYTES, bytes(SECTOR_BYTES))
        assert numbers(getter.get("t", 0, 0)) == [0, 2, 3, 5]


@given(offset=st.integers(-2, COUNT + 3), count=st.integers(1, COUNT), most=st.integers(1, 20_000))
@settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_columns_equal_messages(getter: QueueGetter, offset: int, count: int, most: int) -> None:
    messages = getter.get("t", 0, offset, count, max_bytes=most)
    columns = getter.get_columns("t", 0, offset, count, max_bytes=most)
    assert rows_of(columns.batch) == [row_of(each) for each in messages.messages]
    assert (columns.status, columns.next_offset) == (messages.status, messages.next_offset)
    assert (columns.min_offset, columns.max_offset) == (messages.min_offset, messages.max_offset)
