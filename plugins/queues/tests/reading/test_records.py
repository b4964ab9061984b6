"""Records as bytes, by queue and by physical offset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lakelog
from lakelog import GetStatus, Message, Store
from lakelog.arguments import WrongType, WrongValue
from lakelog.errors import OffsetOutOfRange, StoreReadOnly
from lakelog.format.record import decode
from lakelog_queues.units.tags import java_hash
from plugins.queues.tests.groups.support import open_store

pytestmark = pytest.mark.both_ways


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path) as opened:
        for n in range(20):
            opened.put(Message("t", b"%d" % n, queue_id=0, tags="AB"[n % 2]))
        assert opened.wait_dispatched()
        yield opened


def test_the_same_as_messages(store: Store) -> None:
    for queue, offset in ((0, -1), (0, 0), (0, 7), (0, 19), (0, 20), (0, 25), (3, 0)):
        found = store.get_records("t", queue, offset, 5)
        messages = store.get("t", queue, offset, 5)
        assert [decode(memoryview(each)) for each in found.records] == messages.messages
        assert found.queue_offsets == [each.queue_offset for each in messages.messages]
        for name in ("status", "next_offset", "min_offset", "max_offset"):
            assert getattr(found, name) == getattr(messages, name)


def test_by_tags_code_alone_and_by_a_limit_of_bytes(store: Store) -> None:
    found = store.get_records("t", 0, 4, 3, tags_codes={java_hash("B")})
    assert (found.queue_offsets, found.next_offset) == ([5, 7, 9], 10)
    none = store.get_records("t", 0, 4, 3, tags_codes=[7])
    assert (none.status, none.records, none.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, [], 20)
    for codes in ("A", 5, ["A"], [1 << 31]):
        with pytest.raises((WrongType, WrongValue), match="tags_codes"):
            store.get_records("t", 0, 0, tags_codes=codes)  # type: ignore[arg-type]  # no hashes
    size = store.get("t", 0, 0).messages[0].size
    assert len(store.get_records("t", 0, 0, 20, max_bytes=2 * size).records) == 2


def test_by_physical_offset(store: Store) -> None:
    (message,) = store.get("t", 0, 12, 1).messages
    record = store.look_up_record(message.physical_offset)
    assert record == store.get_records("t", 0, 12, 1).records[0]
    assert store.look_up_record(message.message_id) == record
    with pytest.raises(OffsetOutOfRange):
        store.look_up_record(1 << 40)
    with pytest.raises(OffsetOutOfRange, match="inside the one"):
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
