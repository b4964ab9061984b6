"""Queues and index follow the minimum of the log, and stay correct."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from core.tests.maintenance.support import FEW, Keeping, MaintenancePlugin
from core.tests.store.support import open_small, read_small
from lakelog import Message, Store
from lakelog.errors import DispatchStopped
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.properties import INNER_MULTI_DISPATCH
from lakelog.format.record_batch import RecordBatch
from lakelog.hooks import DiskState, Factory, Kind, NoSettings
from lakelog.hooks.hookspecs import hookimpl
from lakelog_doctor.check import check
from lakelog_testing.crash.opener import owned_by
from lakelog_testing.samples import copy_store

QUEUES = {
    "consume-queue": {
        "file_entries": 16,
        "ext_enabled": True,
        "ext_file_size_bytes": 512,
        "batch_file_size_bytes": 46 * 8,
    }
}


def put(
    store: Store,
    count: int,
    topics: tuple[str, ...] = ("t",),
    properties: dict[str, str] | None = None,
) -> None:
    first = {topic: _end(store, topic) for topic in topics}
    for number in range(count):
        for topic in topics:
            body = b"%06d" % number + b"." * 394
            if topic == "b":
                properties = {"INNER_NUM": "1", "INNER_BASE": str(first[topic] + number)}
            message = Message(
                topic, body, tags=f"tag{number % 3}", queue_id=0, properties=properties or {}
            )
            store.put(message)
    assert store.wait_dispatched()


def _end(store: Store, topic: str) -> int:
    return max((each.max_offset for each in store.queues(topic)), default=0)


def files(folder: Path) -> list[int]:
    return sorted(int(each.name) for each in folder.iterdir()) if folder.is_dir() else []


def damage(path: Path, **more: Any) -> list[str]:
    return [str(each) for each in check(path, index=False, plugins=[], **{**QUEUES, **more})]


def test_files_below_the_minimum_go_and_readers_see_what_is_left(tmp_path: Path) -> None:
    plugin = MaintenancePlugin(Keeping(keep=1))
    folder = tmp_path / "consumequeue" / "t" / "0"
    with plugin.open(tmp_path, **QUEUES) as store, read_small(tmp_path, **QUEUES) as reader:
        put(store, 200)
        assert reader.get("t", 0, 0, 1).messages
        before = len(files(folder)), len(files(tmp_path / "consumequeue_ext" / "t" / "0"))
        report = store.delete_expired()
        first = store.queues("t")[0].min_offset
        assert first > 100
        assert files(folder)[0] == first // 16 * 16 * 20
        assert len(files(folder)) == -(-200 // 16) - first // 16
        now = len(files(folder)), len(files(tmp_path / "consumequeue_ext" / "t" / "0"))
        assert report.other_files == sum(before) - sum(now)
        assert all(one > other for one, other in zip(before, now, strict=True))
        for each in (store, reader):
            info = each.queues("t")[0]
            assert (info.min_offset, info.max_offset) == (first, 200)
            found = each.get("t", 0, first, 1000).messages
            assert [int(one.body[:6]) for one in found] == list(range(first, 200))
            found = each.get("t", 0, first, 100, tags="tag1").messages
            tagged = [number for number in range(first, 200) if number % 3 == 1]
            assert [int(one.body[:6]) for one in found] == tagged
            gone = each.get("t", 0, 0, 10)
            assert (list(gone.messages), gone.next_offset) == ([], first)
        put(store, 50)
        plugin.cleaner.keep = 0
        store.delete_expired()
        assert store.queues("t")[0].max_offset == 250
    assert damage(tmp_path) == []
    with open_small(tmp_path, **QUEUES) as store:
        assert store.queues("t")[0].max_offset == 250
        assert store.put(Message("t", b"", queue_id=0)).queue_offset == 250


def test_queues_of_batches_and_light_queues_follow_too(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "commitlog").mkdir()
    table = {"b": {"topicName": "b", "attributes": {"queue.type": "BatchCQ"}}}
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    plugin = MaintenancePlugin(Keeping(keep=1))
    light = {INNER_MULTI_DISPATCH: "%LMQ%one"}
    with plugin.open(tmp_path, light_queues=True, **QUEUES) as store:
        put(store, 80, ("b",))
        put(store, 80, properties=light)
        put(store, 60, ("b", "t"))
        folders = [
            tmp_path / "batchconsumequeue" / "b" / "0",
            tmp_path / "consumequeue" / "t" / "0",
            tmp_path / "consumequeue" / "%LMQ%one" / "0",
        ]
        before = [files(each)[0] for each in folders]
        assert before == [0, 0, 0]
        first = store.delete_expired()
        assert first.other_files
        assert all(files(each)[0] > 0 for each in folders)
        for topic in ("b", "t", "%LMQ%one"):
            info = store.queues(topic)[0]
            count = info.max_offset - info.min_offset
            assert len(store.get(topic, 0, info.min_offset, 1000).messages) == count
            due = [
                each
                for each in store.scan()
                if topic in (each.topic, "%LMQ%one")
                and (topic != "%LMQ%one" or INNER_MULTI_DISPATCH in each.properties)
            ]
            assert count == len(due)
    assert damage(tmp_path) == []


def test_the_next_open_finds_nothing_odd(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After a clean stop, and after a crash, nothing is dispatched again, and nothing is logged."""
    plugin, place = MaintenancePlugin(Keeping(keep=1)), tmp_path / "store"
    with plugin.open(place, **QUEUES) as store:
        put(store, 200)
        store.delete_expired()
        for each in owned_by(store).dispatchers:
            each.dispatcher.flush()
        copy_store(place, tmp_path / "crashed")
        minimum = store.min_offset
    caplog.set_level(logging.WARNING, "lakelog")
    for path in (place, tmp_path / "crashed"):
        with open_small(path, **QUEUES) as store:
            assert store.recovery is not None
            assert not store.recovery.damage
            assert store.recovery.minimum == minimum
            assert (store.recovery.dispatched_from or 0) > minimum
            assert store.queues("t")[0].max_offset == 200
        assert damage(path) == []
    assert [each for each in caplog.records if "lack" in each.getMessage()] == []


def test_files_that_a_crash_left_go_in_the_first_round(tmp_path: Path) -> None:
    with open_small(tmp_path, **QUEUES) as store:
        put(store, 200)
    names = sorted((tmp_path / "commitlog").iterdir())
    for each in names[:-1]:
        each.unlink()
    plugin = MaintenancePlugin(Keeping(keep=99))
    with plugin.open(tmp_path, **QUEUES) as store:
        assert files(tmp_path / "consumequeue" / "t" / "0")[0] == 0
        report = store.delete_expired()
        assert (report.deleted, report.other_files > 0) == ((), True)
        assert files(tmp_path / "consumequeue" / "t" / "0")[0] > 0


@pytest.mark.parametrize("wanted", [False, True])
def test_topics_of_which_nothing_is_left_go_if_that_is_set(tmp_path: Path, wanted: bool) -> None:
    plugin = MaintenancePlugin(Keeping(remove_empty_queues=wanted))
    with plugin.open(tmp_path, **FEW) as store:
        put(store, 20, ("old",))
        put(store, 100)
        report = store.delete_expired()
        assert report.topics == (("old",) if wanted else ())
        assert store.topics() == (["t"] if wanted else ["old", "t"])
        assert store.put(Message("old", b"", queue_id=0)).queue_offset == 20
        assert store.wait_dispatched()
        assert store.topics() == ["old", "t"]
        assert len(store.get("old", 0, 20, 10).messages) == 1


def test_a_topic_with_messages_in_one_queue_stays(tmp_path: Path) -> None:
    plugin = MaintenancePlugin(Keeping(remove_empty_queues=True))
    with plugin.open(tmp_path, **FEW) as store:
        for queue_id in range(3):
            store.put(Message("half", b"old", queue_id=queue_id))
        put(store, 100)
        store.put(Message("half", b"new", queue_id=1))
        assert store.wait_dispatched()
        report = store.delete_expired()
        assert (bool(report.deleted), report.topics) == (True, ())
        assert [bytes(each.body) for each in store.get("half", 1, 1).messages] == [b"new"]


def test_what_a_tombstone_covers_is_durable(tmp_path: Path) -> None:
    """Otherwise it covers messages that are put in the same place after a power cut."""
    plugin = MaintenancePlugin()
    with plugin.open(tmp_path, **FEW) as store:
        put(store, 20, ("old",))
        put(store, 100)
        store.delete_expired()
        put(store, 1)
        assert store.flushed_offset < store.max_offset
        assert store.delete_unused_topics() == ["old"]
        assert store.flushed_offset == store.max_offset


def test_a_topic_that_is_put_to_meanwhile_is_not_buried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that are not dispatched yet are after the tombstone, although they are in the log."""
    plugin = MaintenancePlugin(Keeping(remove_empty_queues=True))
    with plugin.open(tmp_path, **FEW) as store:
        put(store, 20, ("old",))
        put(store, 100)
        owned = owned_by(store)
        dispatched = owned.positions.dispatched
        with owned.reput.paused():
            store.put(Message("old", b"new", queue_id=0))
            assert owned.positions.dispatched == dispatched
            as_it_is = nullcontext(owned.dispatchers)
            monkeypatch.setattr(owned.reput, "paused", lambda: as_it_is)
            report = store.delete_expired()
            monkeypatch.undo()
        assert report.topics == ("old",)
        assert store.wait_dispatched()
        assert [bytes(each.body) for each in store.get("old", 0, 20, 10).messages] == [b"new"]


def test_a_queue_file_that_stays_is_told_and_does_no_harm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Keeps(RealFileSystem):
        def unlink(self, path: Path) -> None:
            if "consumequeue" in path.parts:
                raise OSError(1, "not permitted", str(path))
            super().unlink(path)

    plugin = MaintenancePlugin(Keeping(keep=1))
    with plugin.open(tmp_path, files=Keeps(), **FEW) as store:
        put(store, 200)
        assert store.delete_expired().deleted
        assert "stays" in caplog.text
        info = store.queues("t")[0]
        assert len(store.get("t", 0, info.min_offset, 1000).messages) == 200 - info.min_offset
    assert damage(tmp_path, **FEW) == []


class Picky(MaintenancePlugin):
    """Also offers a dispatcher, whose disk is full while ``no_room`` is set."""

    directories: Sequence[str] = ()
    no_room = True
    dispatched = 0

    @hookimpl
    def lakelog_dispatchers(self) -> list[Factory]:
        return [Factory(Kind.DISPATCHER, "picky", NoSettings, lambda *_: self)]

    def resume(self, minimum: int, end: int) -> int:
        return end

    def dispatch(self, batch: RecordBatch) -> None:
        if self.no_room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.dispatched += len(batch)

    def truncate(self, end_offset: int) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("state", [DiskState.CLEAN, DiskState.STOP_WRITING])
def test_queues_go_on_by_themselves_once_their_disk_has_room(
    state: DiskState, tmp_path: Path
) -> None:
    """Also while puts are refused: no record may be deleted before it is dispatched."""
    plugin = Picky(Keeping(keep=99))
    given: dict[str, Any] = {
        "disk_watcher": "mine-too",
        "dispatchers": ["consume-queue", "picky"],
        "maintenance": {"first_round_ms": 60_000, "interval_ms": 10_000},
    }
    with plugin.open(tmp_path, **given) as store:
        store.put(Message("t", b""))
        with pytest.raises(DispatchStopped):
            store.wait_dispatched(timeout_ms=10_000)
        plugin.watcher.state = state
        plugin.clock.advance_and_settle(60_000)
        assert plugin.dispatched == 0
        plugin.no_room = False
        plugin.clock.advance_and_settle(10_000)
        assert store.wait_dispatched(timeout_ms=10_000)
        assert plugin.dispatched == 1
