"""Committed offsets are never ahead of the log, and the offsets of a queue never start again."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog import Message, Store
from lakelog.errors import StoreError, StoreFailed
from lakelog.files.filesystem import RealFileSystem
from lakelog_queues.consumers.offsettable import OffsetTable
from lakelog_queues.dispatching import consumequeues
from lakelog_rocketmq.fastjson import parse_object
from plugins.queues.tests.groups.support import fill, joined, open_store
from tests.support.waiting import until

SEGMENT = 16 << 10


def opened(path: Path, **more: Any) -> Store:
    return open_store(path, segment_size_bytes=SEGMENT, **more)


def image_after_power_cut(store: Store, image: Path) -> Path:
    """A copy of an open store, without the bytes of the log that are not durable."""
    shutil.copytree(store.path, image)
    for segment in (image / "commitlog").iterdir():
        start = int(segment.name)
        content = segment.read_bytes()
        durable = content[: max(0, store.flushed_offset - start)]
        segment.write_bytes(durable.ljust(len(content), b"\0"))
    return image


# --- nothing is durable before the log ---


def test_the_log_is_durable_before_the_offsets_that_count_its_messages(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as store:
        fill(store, 20, queues=1)
        with store.consumer("g", "t", start="earliest") as consumer:
            consumer.poll(20)
            assert store.flushed_offset < store.max_offset
            consumer.commit()
        image = image_after_power_cut(store, tmp_path / "image")
    with opened(image) as store:
        assert store.queue_bounds("t", 0) == (0, 20)
        assert store.groups() == {"g": {"t": {0: 20}}}


@pytest.mark.parametrize(("copies", "more"), [("%RETRY%g", {}), ("%DLQ%g", {"max_attempts": 1})])
def test_a_copy_is_durable_before_the_offset_that_passes_its_message(
    tmp_path: Path, copies: str, more: dict[str, int]
) -> None:
    with opened(tmp_path / "store") as store:
        fill(store, 5, queues=1)
        store.flush()
        member = joined(store, **more)

        def is_copied() -> bool:
            for each in member.poll():
                if each.message.topic == "t" and bytes(each.message.body) == b"3":
                    member.nack(each, delay_ms=0)
                else:
                    member.ack(each)
            return copies in store.topics()

        until(is_copied)
        member.commit()
        until(lambda: store.groups()["g"]["t"] == {0: 5})
        image = image_after_power_cut(store, tmp_path / "image")
        member.close()
    with opened(image) as store:
        assert store.get(copies, 0, 0).messages[0].body == b"3"


def a_table(path: Path, sync: Callable[[], bool]) -> OffsetTable:
    return OffsetTable(RealFileSystem(), path, sync)


def test_a_log_that_cannot_be_made_durable_keeps_the_offsets_in_memory(tmp_path: Path) -> None:
    answers: list[bool | Exception] = [StoreFailed("the disk is broken"), False, True]

    def sync() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    table = a_table(tmp_path, sync)
    for expected in ("broken", "signal handler"):
        with pytest.raises(StoreError, match=expected):
            table.commit("g", "t", {0: 1})
        assert not (tmp_path / "config").exists()
    table.flush()
    assert a_table(tmp_path, lambda: True).groups() == {"g": {"t": {0: 1}}}


def test_a_signal_handler_in_a_commit_waits_for_nothing(tmp_path: Path) -> None:
    errors: list[StoreError] = []

    def commit_in_handler(*_: object) -> None:
        try:
            table.commit("g", "t", {0: 2})
        except StoreError as error:
            errors.append(error)

    def sync() -> bool:
        if not errors:
            signal.raise_signal(signal.SIGUSR1)
        return True

    table = a_table(tmp_path, sync)
    former = signal.signal(signal.SIGUSR1, commit_in_handler)
    try:
        table.commit("g", "t", {1: 5})
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert "commit again after it" in str(errors[0])
    table.flush()
    assert a_table(tmp_path, lambda: True).groups() == {"g": {"t": {0: 2, 1: 5}}}


# --- offsets beyond the end of their queue ---


def lose_last_segments(path: Path) -> None:
    for each in sorted((path / "commitlog").iterdir())[1:]:
        each.unlink()


def cut_at_damage(path: Path) -> None:
    with (path / "commitlog" / f"{SEGMENT:020d}").open("r+b") as file:
        file.seek(200)
        file.write(b"damaged")
    lakelog.recover(
        path,
        full=True,
        on_damage="truncate",
        segment_size_bytes=SEGMENT,
        dispatchers=["consume-queue"],
    )


@pytest.mark.parametrize("lose", [lose_last_segments, cut_at_damage])
def test_an_offset_beyond_the_end_is_set_back_before_the_first_append(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lose: Callable[[Path], None]
) -> None:
    with opened(tmp_path) as store:
        for number in range(100):
            store.put(Message("t", b"%03d" % number * 100, queue_id=0))
            store.put(Message("SCHEDULE_TOPIC_XXXX", b"%03d" % number, queue_id=2))
        store.wait_dispatched()
        store.commit_offsets([("g", "t", {0: 100}), ("h", "t", {0: 3})])
    delays = tmp_path / "config" / "delayOffset.json"
    delays.write_text('{"offsetTable":{3:100}}')
    with caplog.at_level(logging.WARNING):
        lose(tmp_path)
        store = opened(tmp_path)
    with store:
        bounds = store.queue_bounds("t", 0)
        assert bounds is not None
        end = bounds[1]
        assert 0 < end < 100
        assert store.groups() == {"g": {"t": {0: end}}, "h": {"t": {0: 3}}}
        said = f"group 'g' is at offset 100 of queue t/0, which ends at {end}"
        assert said in caplog.text
        levels = store.queue_bounds("SCHEDULE_TOPIC_XXXX", 2)
        assert levels is not None
        assert parse_object(delays.read_bytes())["offsetTable"] == {"3": levels[1]}
        assert "delay level 3 is at offset 100 of queue SCHEDULE_TOPIC_XXXX/2" in caplog.text
        fill(store, 5, queues=1)
        with store.consumer("g", "t", start="earliest") as consumer:
            assert [bytes(each.body) for each in consumer.poll()] == [b"%d" % n for n in range(5)]


@pytest.mark.parametrize("lose", [lose_last_segments, cut_at_damage])
def test_what_members_had_beyond_the_end_is_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lose: Callable[[Path], None]
) -> None:
    """The first message is not acknowledged, so that the committed offset is not beyond the end."""
    with opened(tmp_path) as store:
        for number in range(100):
            store.put(Message("t", b"%03d" % number * 100, queue_id=0))
        store.wait_dispatched()
        member = joined(store)
        held = [each for _ in range(10) for each in member.poll(10)]
        member.ack(*held[1:])
    lose(tmp_path)
    with opened(tmp_path) as store:
        bounds = store.queue_bounds("t", 0)
        assert bounds is not None
        assert bounds[1] < 100
        assert "has handed out messages up to offset 100 of queue t/0" in caplog.text
        new = [b"%d" % number for number in range(100)]
        fill(store, 100, queues=1)
        seen = set()
        with joined(store) as member:

            def is_complete() -> bool:
                for each in member.poll(100):
                    seen.add(bytes(each.message.body))
                    member.ack(each)
                return seen >= set(new)

            until(is_complete)


def test_offsets_of_a_queue_that_never_was_are_set_to_its_begin(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Even one that no file of a queue can have."""
    with opened(tmp_path) as store:
        store.commit_offsets([("g", "t", {0: 1 << 62})])
    with opened(tmp_path) as store:
        assert store.groups() == {"g": {"t": {0: 0}}}
        assert "is at offset 4611686018427387904 of queue t/0, which ends at 0" in caplog.text
        fill(store, 3, queues=1)
        with store.consumer("g", "t", start="earliest") as consumer:
            assert len(consumer.poll()) == 3


def test_a_damaged_file_of_offsets_keeps_no_store_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened(tmp_path).close()
    file = tmp_path / "config" / "consumerOffset.json"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"{")
    with opened(tmp_path) as store:
        fill(store, 1)
    assert "cannot be compared with the ends of their queues" in caplog.text
    assert file.read_bytes() == b"{"


# --- the ends of queues whose messages expired ---

_EXPIRE = """
import json, os, sys
import lakelog
path, how, given = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
store = lakelog.open(path, **given)
for number in range(100):
    store.put(lakelog.Message("t", b"old", queue_id=0))
store.wait_dispatched()
store.commit_offsets([("g", "t", {0: 100})])
for number in range(300):
    store.put(lakelog.Message("other", bytes(200), queue_id=0))
store.wait_dispatched()
while store.min_offset < store.max_offset - 40_000:
    store.delete_expired()
if how == "unused":
    assert "t" in store.delete_unused_topics()
if how == "removed":
    store.delete_topic("t")
if how != "close":
    os.kill(os.getpid(), 9)
store.close()
"""


def expire(path: Path, how: str, **more: Any) -> dict[str, Any]:
    """Make a store whose log has no message of the topic ``t`` any more; group ``g`` is at 100."""
    given: dict[str, Any] = {
        "segment_size_bytes": SEGMENT,
        "dispatchers": ["consume-queue"],
        "cleaner": "retention",
        "retention": {"max_segments": 2, **more},
        "flush": "none",
    }
    command = [sys.executable, "-c", _EXPIRE, os.fspath(path), how, json.dumps(given)]
    done = subprocess.run(command, check=False)
    assert done.returncode in (0, -signal.SIGKILL)
    return given


def nothing(_path: Path) -> None:
    pass


def rebuild(path: Path) -> None:
    lakelog_doctor = pytest.importorskip("lakelog_doctor.rebuild")
    lakelog_doctor.rebuild(path, index=False, segment_size_bytes=SEGMENT)


def without_queues(path: Path) -> None:
    shutil.rmtree(path / "consumequeue")


def without_queues_and_list(path: Path) -> None:
    without_queues(path)
    (path / "lakelog" / "queues.json").unlink()


@pytest.mark.parametrize(
    ("how", "between", "more"),
    [
        ("unused", nothing, {}),
        ("removed", nothing, {}),
        ("kill", nothing, {"remove_empty_queues": True}),
        ("close", rebuild, {}),
        ("close", without_queues, {}),
        ("kill", without_queues, {}),
        ("close", without_queues_and_list, {}),
    ],
)
def test_a_queue_whose_messages_expired_goes_on_at_its_end(
    tmp_path: Path, how: str, between: Callable[[Path], None], more: dict[str, bool]
) -> None:
    given = expire(tmp_path, how, **more)
    between(tmp_path)
    for _ in range(2):  # the second open finds what the first one noted
        with lakelog.open(tmp_path, **given) as store:
            assert store.groups() == {"g": {"t": {0: 100}}}
    with lakelog.open(tmp_path, **given) as store:
        assert store.put(Message("t", b"new", queue_id=0)).queue_offset == 100
        store.wait_dispatched()
        with store.consumer("g", "t", start="earliest") as consumer:
            assert [bytes(each.body) for each in consumer.poll()] == [b"new"]


def test_without_a_group_the_noted_end_counts(tmp_path: Path) -> None:
    given = expire(tmp_path, "unused")
    (tmp_path / "config" / "consumerOffset.json").unlink()
    with lakelog.open(tmp_path, **given) as store:
        assert store.put(Message("t", b"new", queue_id=0)).queue_offset == 100


# --- the list of former ends ---


def former(path: Path) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads((path / "lakelog/queues.json").read_text())[
        "former"
    ]
    return found


def remove_all(store: Store, *topics: str) -> None:
    for topic in topics:
        store.put(Message(topic, b"x", queue_id=0))
        store.wait_dispatched()
        store.delete_topic(topic)


def test_former_ends_are_kept_as_long_as_somebody_has_progress_there(tmp_path: Path) -> None:
    topics = "committed", "shown", "rmq_sys_wheel_timer", "nobody"
    delays = tmp_path / "config" / "delayOffset.json"
    with opened(tmp_path) as store:
        for topic in (*topics, "SCHEDULE_TOPIC_XXXX"):
            store.put(Message(topic, b"x", queue_id=0))
        store.wait_dispatched()
        store.commit_offsets([("g", "committed", {0: 1})])
        with store.subscribe("g", "shown", broadcast="screen", start="earliest") as member:
            assert member.poll()
        remove_all(store, *topics, "SCHEDULE_TOPIC_XXXX")
        delays.write_text('{"offsetTable":{1:2}}')
        assert former(tmp_path).keys() == {*topics, "SCHEDULE_TOPIC_XXXX"}
    opened(tmp_path).close()
    assert former(tmp_path).keys() == {*topics, "SCHEDULE_TOPIC_XXXX"} - {"nobody"}
    (tmp_path / "config" / "consumerOffset.json").write_text("{")
    (tmp_path / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)
    opened(tmp_path).close()
    assert "committed" in former(tmp_path)


def test_former_ends_of_many_removed_topics_are_forgotten_while_the_store_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumequeues, "_UNKNOWN_FORMER", 4)
    with opened(tmp_path) as store:
        store.commit_offsets([("g", "kept", {0: 1})])
        remove_all(store, "kept", *(f"t{number}" for number in range(20)))
        assert "kept" in former(tmp_path)
        assert len(former(tmp_path)) <= 6


def test_a_former_end_sets_no_queue_back(tmp_path: Path) -> None:
    """The queue was removed, had messages again, and lost its files."""
    given = expire(tmp_path, "unused")
    with lakelog.open(tmp_path, **given) as store:
        for _ in range(50):
            store.put(Message("t", b"new", queue_id=0))
        store.wait_dispatched()
        for _ in range(300):
            store.put(Message("other", bytes(200), queue_id=0))
        store.wait_dispatched()
        while store.min_offset < store.max_offset - 40_000:
            store.delete_expired()
    shutil.rmtree(tmp_path / "consumequeue" / "t")
    with lakelog.open(tmp_path, **given) as store:
        assert store.put(Message("t", b"newer", queue_id=0)).queue_offset == 150
