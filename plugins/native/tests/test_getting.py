"""Gets by compiled code have the results of plain Python, in whole and in damaged stores."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakelog
from core.tests.store.support import open_small
from lakelog.errors import CorruptRecord
from lakelog.format.properties import REPAIRED_TOPIC
from lakelog.format.record import decode
from lakelog.format.record_batch import Damage
from lakelog.log.log_reader import LogReader
from lakelog.log.sources import OwnedBounds, ViewSource
from lakelog.message import Message, StoredMessage
from lakelog.processes import shared_page as sharedpage
from lakelog.processes.positions import Positions
from lakelog_queues.finding.finder import LookupParts, lookups, readable
from lakelog_queues.finding.get import QueueGetter
from lakelog_queues.finding.results import GetStatus
from lakelog_queues.units.tags import java_hash
from plugins.native.tests.support import NATIVE, with_native

COUNT = 300
ENTRIES = 64
SEGMENT = 1 << 14
FEW = {"consume-queue": {"file_entries": ENTRIES}}
UNIT_BYTES = 20


@attrs.frozen
class Ways:
    """Two getters over the same queues and the same log.

    :ivar positions: bounds of that log, which tests may change
    """

    store: lakelog.Store
    native: QueueGetter
    plain: QueueGetter
    way: Callable[..., Any]
    records: Callable[..., Any]
    positions: Positions

    def both(self, *given: Any, **named: Any) -> None:
        """Compare one call."""
        assert outcome(self.native, *given, **named) == outcome(self.plain, *given, **named)


def ways_of(store: lakelog.Store) -> Ways:
    getter, own = store._find.getter, store._reader
    queues = getter._queues
    mapped, source = readable(own), own.source
    assert mapped is not None
    assert mapped.memory is not None
    assert isinstance(source, ViewSource)
    words = memoryview(bytearray(8 * sharedpage.WORDS)).cast("Q")
    words[:] = mapped.memory.cast("Q")
    positions = Positions(words)
    log = LogReader(ViewSource(source.segments), OwnedBounds(positions), lambda: False)
    compiled = with_native(lambda: lookups(queues, None, log, lambda _topic: 0, None))

    def minimum() -> int:
        return log.min_offset

    native = QueueGetter(queues, log, minimum, ENTRIES, compiled)
    plain = QueueGetter(queues, log, minimum, ENTRIES)
    return Ways(store, native, plain, compiled.get, compiled.records, positions)


def fields(message: StoredMessage) -> list[tuple[type, Any]]:
    return [(type(value), value) for value in attrs.astuple(message)]


def outcome(getter: QueueGetter, *given: Any, **named: Any) -> object:
    """The results of a getter as messages, and as records with and without checksums."""
    return messages(getter, *given, **named), *(
        records(getter, *given, **named, verify=verify) for verify in (True, False)
    )


def records(getter: QueueGetter, *given: Any, tags: str | None = None, **named: Any) -> object:
    wanted = [tag for each in (tags or "*").split("||") if (tag := each.strip())]
    named["tags_codes"] = None if wanted == ["*"] else set(map(java_hash, wanted))
    try:
        found = getter.get_records(*given, **named)
    except (TypeError, ValueError) as error:
        return type(error), str(error)
    bounds = found.next_offset, found.min_offset, found.max_offset
    kinds = {type(each) for each in (*bounds, *found.queue_offsets)}, {*map(type, found.records)}
    return type(found), kinds, found


def messages(getter: QueueGetter, *given: Any, **named: Any) -> object:
    try:
        found = getter.get(*given, **named)
    except (TypeError, ValueError) as error:
        return type(error), str(error)
    bounds = found.next_offset, found.min_offset, found.max_offset
    assert {type(each) for each in bounds} == {int}
    assert hash(found.messages[0]) if found.messages else True
    return type(found), found.status, bounds, [fields(each) for each in found.messages]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[lakelog.Store]:
    """Two queues over some segments, and over some files of units."""
    given = {"segment_size_bytes": SEGMENT, "plugins": None, "accelerator": "native", **FEW}
    with open_small(tmp_path / "s", **given) as store:
        put(store, COUNT)
        yield store


def put(store: lakelog.Store, count: int) -> None:
    """Put different messages into two queues in turn."""
    for number in range(count):
        message = Message(
            *("t", b"%06d" % number + b"." * (number * 7 % 200)),
            tags=None if number % 3 else f"tag{number % 5}",
            keys=f"k{number}",
            queue_id=number % 2,
            born_timestamp_ms=number // 4,
            born_host="[::1]:9" if number % 50 == 7 else None,
            flag=number % 2 - 1,
        )
        store.put(message)
    assert store.wait_dispatched()


@pytest.fixture
def ways(store: lakelog.Store) -> Ways:
    return ways_of(store)


def known(ways: Ways) -> None:
    """Read once by Python, which then knows the start of the queue and has its files open."""
    for offset in range(0, COUNT // 2, ENTRIES):
        ways.plain.get("t", 0, offset, 1)


# --- plain calls ---


def test_a_plain_call_is_answered_and_all_else_left_to_python(ways: Ways) -> None:
    known(ways)
    found = ways.way("t", 0, 5, 32)
    assert found is not None
    assert (found.status, found.next_offset, found.max_offset) == (GetStatus.FOUND, 37, COUNT // 2)
    assert [each.queue_offset for each in found.messages] == list(range(5, 37))
    records, places, *bounds = ways.records("t", 0, 5, 32, 1 << 20, False)
    assert (bounds, places) == ([37, 0, COUNT // 2], list(range(5, 37)))
    assert [decode(each) for each in records] == found.messages
    assert ways.way("t", 0, ENTRIES - 1, 1) is not None
    left = [("t", 0, ENTRIES - 1, 2), ("t", 0, COUNT // 2, 1), ("t", 0, -1, 1), ("t", 2, 0, 1)]
    left += [("u", 0, 0, 1), ("t", 0, 0, 0), ("t", 0, 0, 4097), ("t", 0, 1 << 70, 1)]
    assert [ways.way(*each) for each in left] == [None] * len(left)
    assert [ways.records(*each, 1 << 20, True) for each in left] == [None] * len(left)


ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, False, "0", b"t", 1.0, 1 << 70, -(1 << 70), np.int64(3), []]
)
OFFSETS = st.integers(-2, COUNT // 2 + 3)
COUNTS = st.integers(0, 200)


NAMED = st.fixed_dictionaries(
    {},
    optional={
        "max_bytes": st.none() | st.integers(0, 9000),
        "tags": st.sampled_from([None, "*", "", "tag0", "tag1 || tag3", " || "]),
    },
)
GIVEN = st.tuples(
    *(st.sampled_from(["t", "u", ""]) | ODD, st.integers(-1, 2) | ODD),
    *(OFFSETS | ODD, COUNTS | ODD),
)


@given(GIVEN, NAMED)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_same_arguments(ways: Ways, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    ways.both(*given, **named)


@given(OFFSETS, COUNTS, st.lists(st.integers(0, 80_000), min_size=3, max_size=3), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_same_bounds(
    ways: Ways, offset: int, count: int, bounds: list[int], durable: bool
) -> None:
    words = ways.positions.words
    before = list(words)
    try:
        words[sharedpage.MINIMUM], flushed, appended = sorted(bounds)
        words[sharedpage.FLUSHED], words[sharedpage.APPENDED] = flushed, appended
        words[sharedpage.FLAGS] = sharedpage.DURABLE * durable
        ways.both("t", 0, offset, count)
    finally:
        for at, word in enumerate(before):
            words[at] = word


def test_a_queue_of_a_repair_is_left_to_python(ways: Ways) -> None:
    known(ways)
    assert ways.way("t", 0, 0, 10) is not None
    ways.store.put(Message(REPAIRED_TOPIC, b"", queue_id=0))
    assert ways.store.wait_dispatched()
    assert ways.way("t", 0, 0, 10) is None
    ways.both("t", 0, 0, 10)


def test_what_a_log_says_otherwise_is_left_to_python(ways: Ways) -> None:
    source = ways.store._reader.source
    assert isinstance(source, ViewSource)
    damage = Damage(0, 100, CorruptRecord("found by a test", offset=0))
    bounds = OwnedBounds(ways.positions)
    sources = source, ViewSource(source.segments, [damage])
    made = [LogReader(each, bounds, lambda: False) for each in sources]
    made.append(LogReader(sources[0], bounds, lambda: False, decoder=list))
    assert [readable(each) is None for each in made] == [False, True, True]


# --- damage ---


@contextmanager
def changed(file: Path, at: int, data: bytes) -> Iterator[None]:
    """Change bytes of a file within the block."""
    with file.open("r+b", buffering=0) as opened:
        before = os.pread(opened.fileno(), len(data), at)
        os.pwrite(opened.fileno(), data, at)
        try:
            yield
        finally:
            os.pwrite(opened.fileno(), before, at)


def test_units_of_other_records_lead_to_them_as_in_python(ways: Ways) -> None:
    known(ways)
    folder = ways.store.path / "consumequeue" / "t"
    units = (folder / "0" / f"{0:020d}").read_bytes()
    others = (folder / "1" / f"{0:020d}").read_bytes()
    filler = (0).to_bytes(8, "big") + (0x7FFFFFFF).to_bytes(4, "big") + bytes(8)
    for data in (units[40:60] + units[20:40], others[:60], filler, filler * 3):
        with changed(folder / "0" / f"{0:020d}", 20, data):
            ways.both("t", 0, 0, 10)


def test_a_file_of_units_that_was_cut_short(ways: Ways) -> None:
    known(ways)
    assert ways.way("t", 0, 0, 10) is not None  # it is mapped now
    for length in (10 * UNIT_BYTES + 7, 0):
        os.truncate(ways.store.path / "consumequeue" / "t" / "0" / f"{0:020d}", length)
        for offset in (0, 5, 10):
            ways.both("t", 0, offset, 10)


# --- files and segments that come and go ---


def test_a_file_that_was_closed_meanwhile(ways: Ways) -> None:
    known(ways)
    queue = ways.store._find.getter._queues._queues["t", 0]  # type: ignore[attr-defined]  # of ConsumeQueues
    files = queue._files
    opened, position, room = files.held(1)
    assert (position, room) == (UNIT_BYTES, ENTRIES - 1)
    files.close()
    assert opened.dropped
    assert ways.way("t", 0, 0, 10) is not None  # it is opened again
    ways.both("t", 0, 0, 10)


def test_a_topic_that_was_deleted(ways: Ways) -> None:
    known(ways)
    ways.store.delete_topic("t")
    assert ways.way("t", 0, 0, 10) is None
    ways.both("t", 0, 0, 10)
    put(ways.store, 10)
    ways.positions.words[sharedpage.APPENDED] = ways.store.max_offset
    first = COUNT // 2
    ways.both("t", 0, first, 10)
    ways.both("t", 0, first, 10)
    assert ways.way("t", 0, first, 10) is not None


def test_of_a_queue_that_grows(store: lakelog.Store) -> None:
    done = Thread(target=put, args=(store, 3 * COUNT))
    done.start()
    seen: list[bytes] = []
    while done.is_alive() or len(seen) < 2 * COUNT:
        found = store.get("t", 1, len(seen))
        seen += [each.body[:6] for each in found.messages]
        assert found.next_offset == len(seen)
    done.join()
    numbers = [*range(1, COUNT, 2), *range(1, 3 * COUNT, 2)]
    assert [int(each) for each in seen] == numbers


def test_other_settings(tmp_path: Path) -> None:
    apart: dict[str, Any] = {"consume-queue": {"ext_enabled": True}}
    others: list[dict[str, Any]] = [{"light_queues": True}, {"flush": "group-commit"}]
    for number, more in enumerate((apart, *others, {"writer": "staged"})):
        path = tmp_path / f"{number}"
        with open_small(path, segment_size_bytes=1 << 16, plugins=None, **more) as store:
            put(store, COUNT)
            ways = ways_of(store)
            for offset in range(-1, COUNT // 2 + 1, 14):
                ways.both("t", 0, offset, 20)
            assert (ways.way("t", 0, 0, 32) is None) == (more is apart)


def test_more_bytes_than_a_call_gives_are_left_to_python(ways: Ways) -> None:
    known(ways)
    queues = ways.store._find.getter._queues
    log, plain = readable(ways.store._reader), queues.plain  # type: ignore[attr-defined]  # of ConsumeQueues
    assert log is not None
    found = ways.plain.get("t", 0, 0, 3).messages
    size = sum(each.size for each in found)
    for most_bytes, is_answered in ((size, True), (size - 1, False)):
        parts = LookupParts(log, plain, None, lambda _topic: 0, None, most_bytes=most_bytes)
        assert (NATIVE.lookups(parts).get("t", 0, 0, 3) is not None) == is_answered


def test_what_was_closed_is_let_go(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put(store, 10)
        store.get("t", 0, 0)
        assert len(store.get("t", 0, 0).messages) == 5
        finder = weakref.ref(store._find.getter)
    del store
    gc.collect()
    assert finder() is None
