"""Records as bytes, by queue and by physical offset; and many at given places at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakelog
from core.tests.store.support import SEGMENT, open_small, overwrite, read_small
from lakelog import GetStatus, Message, Store
from lakelog.codec import decode
from lakelog.errors import CorruptRecord, LakelogError, OffsetOutOfRange, StoreReadOnly
from lakelog.message import StoredMessage
from lakelog_format.arguments import WrongType, WrongValue
from lakelog_queues.finding.gather import BROKEN, GONE, WHOLE, Gathered
from lakelog_queues.finding.records import PlacedRecords
from lakelog_queues.units.javahash import java_hash
from plugins.queues.tests.groups.support import open_store
from plugins.queues.tests.reading.support import log_of_store, put_numbered

pytestmark = pytest.mark.both_ways


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path) as opened:
        for n in range(20):
            opened.put(Message("t", b"%d" % n, queue_id=0, tags="AB"[n % 2]))
        assert opened.wait_dispatched()
        yield opened


@pytest.mark.parametrize("offset", [-1, 0, 7, 19, 20, 25])
@pytest.mark.parametrize("queue", [0, 3])
def test_the_same_as_messages(store: Store, offset: int, queue: int) -> None:
    found = store.get_records("t", queue, offset, 5)
    messages = store.get("t", queue, offset, 5)
    assert [decode(memoryview(each)) for each in found.records] == messages.messages
    assert found.queue_offsets == [each.queue_offset for each in messages.messages]
    bounds = messages.next_offset, messages.min_offset, messages.max_offset
    assert (found.status, found.next_offset, found.min_offset, found.max_offset) == (
        messages.status,
        *bounds,
    )


def test_by_tags_code_alone(store: Store) -> None:
    found = store.get_records("t", 0, 4, 3, tags_codes={java_hash("B")})
    assert (found.status, found.queue_offsets, found.next_offset) == (
        GetStatus.FOUND,
        [5, 7, 9],
        10,
    )
    none = store.get_records("t", 0, 4, 3, tags_codes=[7])
    assert (none.status, none.records, none.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, [], 20)


def test_a_limit_of_bytes(store: Store) -> None:
    size = store.get("t", 0, 0).messages[0].size
    assert len(store.get_records("t", 0, 0, 20, max_bytes=2 * size).records) == 2


@pytest.mark.parametrize("codes", ["A", 5, ["A"], [1 << 31]])
def test_codes_that_are_no_hashes(store: Store, codes: object) -> None:
    with pytest.raises((WrongType, WrongValue), match="tags_codes"):
        store.get_records("t", 0, 0, tags_codes=codes)  # type: ignore[arg-type]  # that is the test


def test_by_physical_offset(store: Store) -> None:
    (message,) = store.get("t", 0, 12, 1).messages
    record = store.look_up_record(message.physical_offset)
    assert record == store.get_records("t", 0, 12, 1).records[0]
    assert store.look_up_record(message.message_id) == record
    with pytest.raises(OffsetOutOfRange):
        store.look_up_record(1 << 40)
    with pytest.raises(CorruptRecord):
        store.look_up_record(message.physical_offset + 1)


def test_a_light_queue_has_offsets_of_its_own(tmp_path: Path) -> None:
    with open_store(tmp_path / "light", light_queues=True) as store:
        for n in range(4):
            dispatch = {"INNER_MULTI_DISPATCH": "%LMQ%a"} if n % 2 else None
            store.put(Message("t", b"%d" % n, queue_id=0, properties=dispatch))
        assert store.wait_dispatched()
        found = store.get_records("%LMQ%a", 0, 0)
        assert found.queue_offsets == [0, 1]
        assert [decode(memoryview(each)).queue_offset for each in found.records] == [1, 3]
        with store.subscribe("g", "%LMQ%a", start="earliest") as member:
            taken = member.poll()
            assert [each.queue_offset for each in taken] == [0, 1]
            assert [each.message.queue_offset for each in taken] == [1, 3]
            member.ack(taken[0])
            member.commit()
            assert store.groups()["g"]["%LMQ%a"] == {0: 1}


def test_offsets_of_many_groups_in_one_write(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "config" / "consumerOffset.json"
    store.commit_offsets([("a", "t", {0: 1, 1: 2}), ("b", "u", {7: 3}), ("a", "u", {0: 4})])
    assert store.groups() == {"a": {"t": {0: 1, 1: 2}, "u": {0: 4}}, "b": {"u": {7: 3}}}
    assert b'"counter":1,' in file.read_bytes()
    store.forget_offsets("a", "t")
    assert store.groups() == {"a": {"u": {0: 4}}, "b": {"u": {7: 3}}}
    store.forget_offsets("a")
    assert store.groups() == {"b": {"u": {7: 3}}}


def test_a_reader_commits_nothing(store: Store, tmp_path: Path) -> None:
    with lakelog.open(tmp_path, mode="read") as reader:
        with pytest.raises(StoreReadOnly):
            reader.commit_offsets([("a", "t", {0: 1})])
        with pytest.raises(StoreReadOnly):
            reader.forget_offsets("a")


# --- records at given places, in any order, some of them no records ---


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same store, by its owner and by a reader; its messages; one of them is damaged."""
    path = tmp_path_factory.mktemp("gather") / "s"
    with open_small(path, record_crc=True) as owner:
        put_numbered(owner, 150)
        messages = list(owner.scan())
        bad = messages[40]
        overwrite(path, bad.physical_offset + 150, b"?")
        with read_small(path, segment_size_bytes=SEGMENT) as reader:
            yield owner, reader, messages


def gathered_at(store: Store, places: list[tuple[int, int]], **more: bool) -> Gathered:
    table = np.array(places, np.int64).reshape(-1, 2)
    records = PlacedRecords(log_of_store(store))
    return records.gather(table[:, 0], table[:, 1].astype(np.int32), **more)


def messages_of(gathered: Gathered) -> dict[int, StoredMessage]:
    return {
        int(row): batch.message(at)
        for batch, rows in zip(gathered.batches, gathered.rows, strict=True)
        for at, row in enumerate(rows)
    }


@given(data=st.data())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_like_one_look_up_at_a_time(stores: Any, data: st.DataObject) -> None:
    owner, reader, messages = stores
    whole = st.sampled_from([(each.physical_offset, each.size) for each in messages])
    odd = st.tuples(st.integers(-50, 4 * SEGMENT), st.integers(-1, 400))
    near = st.tuples(whole, st.integers(-1, 1), st.integers(-1, 1)).map(
        lambda each: (each[0][0] + each[1], each[0][1] + each[2])
    )
    places = data.draw(st.lists(st.one_of(whole, whole, near, odd), max_size=12))
    for store in (owner, reader):
        gathered = gathered_at(store, places)
        found = messages_of(gathered)
        for row, (offset, size) in enumerate(places):
            wanted = looked_up(owner, offset, size)
            assert found.get(row) == wanted
            assert gathered.states[row] == (BROKEN if wanted is None else WHOLE)
        for rows in gathered.rows:
            assert (np.diff(rows) > 0).all()


def looked_up(store: Store, offset: int, size: int) -> StoredMessage | None:
    try:
        message = store.look_up(offset)
    except (LakelogError, ValueError):
        return None
    return message if message.size == size else None


def test_the_damaged_one_is_broken_and_only_that(stores: Any) -> None:
    owner, reader, messages = stores
    places = [(each.physical_offset, each.size) for each in messages]
    for store in (owner, reader):
        states = gathered_at(store, places).states
        assert np.flatnonzero(states != WHOLE).tolist() == [40]
        assert states[40] == BROKEN
        assert (gathered_at(store, places, verify=False).states == WHOLE).all()


def test_files_are_read_into_one_batch(stores: Any) -> None:
    _, reader, messages = stores
    places = [(each.physical_offset, each.size) for each in messages[:40]]
    gathered = gathered_at(reader, places)
    assert len(gathered.batches) == 1
    assert gathered.batches[0].physical_offsets.tolist() == [offset for offset, _ in places]


def test_a_segment_that_went(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put_numbered(store, 150)
        messages = list(store.scan())
    places = [(each.physical_offset, each.size) for each in messages]
    (tmp_path / "s" / "commitlog" / f"{0:020d}").unlink()
    with read_small(tmp_path / "s", segment_size_bytes=SEGMENT) as reader:
        gathered = gathered_at(reader, places)
    gone = [offset < SEGMENT for offset, _ in places]
    assert (gathered.states == np.where(gone, GONE, WHOLE)).all()


def test_a_segment_cut_short(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put_numbered(store, 40)
        messages = list(store.scan())
    places = [(each.physical_offset, each.size) for each in messages]
    cut = places[30][0] + 10
    with (tmp_path / "s" / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.truncate(cut)
    with read_small(tmp_path / "s", segment_size_bytes=SEGMENT) as reader:
        states = gathered_at(reader, places).states
    assert (states == WHOLE).nonzero()[0].tolist() == list(range(30))
