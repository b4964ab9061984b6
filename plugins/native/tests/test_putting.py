"""Puts by compiled code, in stores: beside plain Python, and in several processes."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import lakelog
from core.tests.store.support import NEVER, open_small
from core.tests.store.workers import SERVE, a_worker
from lakelog.builtin import NoFlush
from lakelog.errors import StoreFailed, StrategyFailed
from lakelog.files.filesystem import RealFileSystem
from lakelog.hooks import Outcome
from lakelog.log.commit_log import HIDDEN_STEP_MS
from lakelog.message import Message, MessageColumns
from lakelog.processes import queue_table
from lakelog.processes.positions import FLAG, WakePage
from lakelog.processes.shared_page import INTENT_END, INTENT_START, LAST_TIMESTAMP, SharedPage
from lakelog_native import plugin
from lakelog_testing.crash.opener import owned_by

FILES = RealFileSystem()
PUT_OK = lakelog.PutStatus.PUT_OK
SEGMENT = 1 << 16
PUTS = 200
"""Enough for some rolls, and for some more blocks."""
KILLS = 3


def native_puts(store: lakelog.Store) -> Any:
    """The object that puts one message by compiled code in ``store``."""
    return store._current.last().puts._putting  # type: ignore[union-attr]  # an appender's


MESSAGE = Message("t", b"x", queue_id=0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[lakelog.Store]:
    """A store with one message, whose puts are by compiled code."""
    with lakelog.open(tmp_path, accelerator="native", flush="none") as store:
        store.put(MESSAGE)
        assert native_puts(store) is not None
        yield store


def seen(result: lakelog.PutResult) -> lakelog.PutResult:
    return attrs.evolve(result, store_timestamp_ms=0)


def a_message(number: int) -> Message:
    return Message(
        f"t{number % 3}",
        b"x" * (number * 7 % 900),
        tags="a" if number % 2 else None,
        keys=f"k{number}",
        queue_id=None if number % 5 else 7,
        sys_flag=4 if number % 11 == 0 else 0,
        born_timestamp_ms=1,
        wait_store_ok=number % 4 != 0,
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("flush", ["none", "inline", "group-commit", "timed"])
def test_the_same_puts_have_the_same_results(tmp_path: Path, flush: str) -> None:
    more: dict[str, Any] = {"flush": flush, "segment_size_bytes": SEGMENT}
    with (
        lakelog.open(tmp_path / "plain", accelerator="none", **more) as plain,
        lakelog.open(tmp_path / "native", accelerator="native", **more) as native,
    ):
        assert native_puts(plain) is None
        for each in range(PUTS):
            message = a_message(each)
            assert seen(native.put(message)) == seen(plain.put(message))
            if each % 4 == 0:
                batch = [a_message(number) for number in range(1, each % 60 + 2)]
                found, expected = native.put_batch(batch), plain.put_batch(batch)
                assert list(map(seen, found)) == list(map(seen, expected))
        for store in (plain, native):
            store.flush()
            assert store.wait_dispatched()
        assert native.max_offset == plain.max_offset
        for topic, queue in itertools.product(("t0", "t1", "t2"), (0, 1, 2, 3, 7)):
            pairs = zip(plain.read(topic, queue), native.read(topic, queue), strict=True)
            for one, other in pairs:
                assert attrs.evolve(other, store_timestamp_ms=one.store_timestamp_ms) == one


def test_a_batch_is_appended_by_compiled_code_unless_a_queue_is_new(store: lakelog.Store) -> None:
    puts, encode = native_puts(store), store._current.last().puts._encode  # type: ignore[union-attr]  # an appender's
    known = encode([Message("t", b"x" * 900, queue_id=0)] * 40)
    end = store.max_offset
    assert puts.append_batch(known) == end + len(known.buffer) == store.max_offset
    assert [each.queue_offset for each in known.results(PUT_OK)] == list(range(1, 41))
    assert puts.append_batch(encode([Message("t", b"x", queue_id=1)] * 2)) is None
    assert puts.append_batch(encode([Message("u", b"x", queue_id=0)] * 2)) is None
    assert puts.append_batch(object()) is None
    assert store.max_offset == end + len(known.buffer)
    assert store.wait_dispatched()
    assert len(list(store.read("t", 0))) == 41


class Failing(NoFlush):
    """A flush strategy whose ``submit`` fails."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        raise OSError("the strategy's own affair")


def test_a_strategy_that_fails_gives_the_message_its_status(store: lakelog.Store) -> None:
    appender = owned_by(store).appender
    flush, appender._flush, appender.answers_at_once = appender._flush, Failing(), False
    with pytest.raises(StrategyFailed) as failed:
        store.put(MESSAGE)
    (accepted,) = failed.value.accepted
    assert accepted.queue_offset == 1
    assert accepted.status is lakelog.PutStatus.FLUSH_DISK_TIMEOUT
    appender._flush = flush


def test_what_cannot_be_put_is_left_to_python(store: lakelog.Store) -> None:
    end = store.max_offset
    for message in (
        Message("t", b"x", properties={"a": "\x01"}, queue_id=0),
        Message("t", b"x", tags="a||b", queue_id=0),
        Message("t", b"x", properties=b"a\x01\x00", queue_id=0),
        Message("t", "text", queue_id=0),  # type: ignore[arg-type]  # the subject of the test
        Message("t", b"x", queue_id=-1),
        Message("a/b", b"x", queue_id=0),
    ):
        assert native_puts(store).put(message) is None
        with pytest.raises((lakelog.PutRefused, TypeError)):
            store.put(message)
    assert store.max_offset == end
    assert native_puts(store).put(Message("u", b"x")) == 0  # chosen, and new to the table
    assert store.max_offset == end


def test_unusual_messages_are_put(store: lakelog.Store) -> None:
    for number, message in enumerate(
        (
            Message("t", b"x", properties={"a": "b"}, queue_id=0),
            Message("t", b"x", properties=b"a\x01b", queue_id=0),
            Message("t", memoryview(b"x"), tags="ä", keys=["k1", "k2"], queue_id=0),
            Message("t", b"x", born_host="[::1]:5", store_host="10.0.0.1:7", queue_id=0),
        )
    ):
        assert native_puts(store).put(message).queue_offset == 1 + number
    assert store.wait_dispatched()
    found = list(store.read("t", 0))[1:]
    assert [each.properties for each in found] == [
        {"a": "b"},
        {"a": "b"},
        {"TAGS": "ä", "KEYS": "k1 k2"},
        {},
    ]
    assert (found[3].born_host, found[3].store_host) == ("[::1]:5", "10.0.0.1:7")


@pytest.mark.parametrize("accelerator", ["native", "none"])
def test_columns_have_their_properties_beside_tags_and_keys(
    tmp_path: Path, accelerator: str
) -> None:
    with lakelog.open(tmp_path, accelerator=accelerator, flush="none") as store:
        for tags, keys in ((["a", "b"], ["k", "l"]), ("a", ["k", "l"]), (["a", "b"], None)):
            columns = MessageColumns(
                "t", [b"x"] * 2, queue_ids=0, tags=tags, keys=keys, properties={"more": "m"}
            )
            assert [each.status for each in store.put_batch(columns)] == [PUT_OK] * 2
        assert store.wait_dispatched()
        assert [each.properties["more"] for each in store.read("t", 0)] == ["m"] * 6


def write_calls() -> int:
    """Number of writing system calls of this process so far, by Linux's count."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("syscw"))


@pytest.mark.parametrize(("map_below_bytes", "calls"), [(0, 200), (16384, 0)])
def test_puts_go_through_the_map_as_the_writer_says(
    tmp_path: Path, map_below_bytes: int, calls: int
) -> None:
    how: dict[str, Any] = {"file": {"map_below_bytes": map_below_bytes}, "dispatchers": ()}
    with lakelog.open(tmp_path / "s", accelerator="native", flush="none", **how) as store:
        store.put(MESSAGE)
        before = write_calls()
        for _ in range(200):
            assert native_puts(store).put(MESSAGE) is not None
        assert calls <= write_calls() - before < calls + 100
        assert len(list(store.scan())) == 201


def touched_bytes(file: Path) -> int:
    """Number of bytes of writable maps of ``file`` that this process has touched."""
    lines, is_its = Path("/proc/self/smaps").read_text().splitlines(), False
    found = 0
    for line in lines:
        if "-" in line.split()[0] and " rw-s " in line:
            is_its = line.endswith(str(file))
        elif line.startswith("Rss:") and is_its:
            found, is_its = found + int(line.split()[1]) * 1024, False
    return found


def test_pages_touched_ahead_stay_zero(tmp_path: Path) -> None:
    how: dict[str, Any] = {"file": {"map_below_bytes": 16384}, "segment_size_bytes": 1 << 20}
    with lakelog.open(tmp_path / "s", accelerator="native", flush="none", **how) as store:
        store.put(MESSAGE)
        assert native_puts(store).put(MESSAGE) is not None
        (file,) = (tmp_path / "s" / "commitlog").glob("0" * 20)
        assert touched_bytes(file) > 10 * store.max_offset
        assert not any(file.read_bytes()[store.max_offset :])


@pytest.mark.parametrize("accelerator", ["native", "none"])
def test_a_batch_waits_if_one_of_its_messages_does(tmp_path: Path, accelerator: str) -> None:
    with lakelog.open(tmp_path, accelerator=accelerator, flush="inline") as store:
        for waits, is_durable in (([False, False], False), ([False, True, False], True)):
            batch = [Message("t", b"", queue_id=0, wait_store_ok=each) for each in waits]
            end = store.put_batch(batch)[-1].end_offset
            assert (store.flushed_offset >= end) == is_durable


BLANK_BYTES = 8


@pytest.mark.parametrize("accelerator", ["native", "none"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_record_leaves_room_for_a_blank_one_at_the_end_of_its_segment(
    tmp_path: Path, count: int, accelerator: str
) -> None:
    for rest in range(BLANK_BYTES + 2):
        how: dict[str, Any] = {"accelerator": accelerator, "segment_size_bytes": 1 << 14}
        with lakelog.open(tmp_path / f"{rest}", flush="none", **how) as store:
            small = store.put(Message("t", b"", queue_id=0)).size
            end = store.put(Message("t", bytes(12_000), queue_id=0)).end_offset
            length, bodies = (1 << 14) - rest - end - count * small, (b"",) * (count - 1)
            batch = [Message("t", body, queue_id=0) for body in (bytes(length), *bodies)]
            results = store.put_batch(batch) if count > 1 else [store.put(batch[0])]
            fits = rest >= BLANK_BYTES
            assert results[0].physical_offset == (end if fits else 1 << 14)
            last = store.put(Message("t", b"", queue_id=0))
            assert last.queue_offset == count + 2
            assert len(list(store.scan())) == count + 3


# --- what other processes write to the shared memory ---


def test_a_pause_of_the_process_with_the_services_is_seen(tmp_path: Path) -> None:
    with (
        a_worker(tmp_path, SERVE) as owner,
        open_small(tmp_path, plugins=[plugin], accelerator="native", **NEVER) as store,
    ):
        owner.hear()
        assert [store.put(MESSAGE).queue_offset for _ in range(2)] == [0, 1]
        assert native_puts(store) is not None
        owner.ask("store._current.parts.owned.page.set_pause('the disk is full')")
        with pytest.raises(lakelog.PutRefused, match="the disk is full"):
            store.put(MESSAGE)
        with pytest.raises(lakelog.PutRefused, match="the disk is full"):
            store.put_batch([MESSAGE] * 2)
        owner.ask("store._current.parts.owned.page.set_pause(None)")
        assert store.put(MESSAGE).queue_offset == 2


@pytest.mark.parametrize("size", [1, 2])
def test_a_failure_of_another_process_is_seen(tmp_path: Path, size: int) -> None:
    store = lakelog.open(tmp_path, accelerator="native", flush="none")
    end = store.put(MESSAGE).end_offset
    SharedPage.join(FILES, tmp_path).fail("the disk is gone")
    with pytest.raises(StoreFailed, match="the disk is gone"):
        store.put_batch([MESSAGE] * size)
    assert store.max_offset == end
    with pytest.raises(StoreFailed):
        store.close()


def test_an_append_that_a_process_did_not_complete_is_repaired_first(store: lakelog.Store) -> None:
    """It died after its bytes were in the log, and before the end of their queue was raised."""
    last = store.put(MESSAGE)
    words, table = SharedPage.join(FILES, store.path).words, owned_by(store).log.table
    table.memory.cast("Q")[table.word_of(("t", 0))] = 1
    words[INTENT_START], words[INTENT_END] = last.physical_offset, last.end_offset
    assert store.put(MESSAGE).queue_offset == last.queue_offset + 1
    assert not words[INTENT_END]
    assert store.wait_dispatched()
    assert [each.queue_offset for each in store.read("t", 0)] == [0, 1, 2]


def test_store_times_fall_with_a_corrected_clock_only(store: lakelog.Store) -> None:
    words = SharedPage.join(FILES, store.path).words
    puts = native_puts(store)
    words[LAST_TIMESTAMP] = puts.put(MESSAGE).store_timestamp_ms + HIDDEN_STEP_MS
    time_ms = words[LAST_TIMESTAMP]
    assert puts.put(MESSAGE).store_timestamp_ms >= time_ms
    assert min(each.store_timestamp_ms for each in store.put_batch([MESSAGE] * 2)) >= time_ms
    for put in (lambda: puts.put(MESSAGE), lambda: store.put_batch([MESSAGE])[0]):
        words[LAST_TIMESTAMP] = time_ms + 3_600_000
        assert put().store_timestamp_ms < time_ms + 3_600_000


def test_a_larger_table_of_queue_ends_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_table, "FIRST_SLOTS", 4)
    with lakelog.open(tmp_path, accelerator="native", flush="none", dispatchers=()) as store:
        generation = owned_by(store).log.table.generation
        for turn in range(20):
            for queue_id in range(turn + 1):
                put = store.put(Message(f"t{queue_id % 3}", b"", queue_id=queue_id))
                assert put.queue_offset == turn - queue_id
        assert owned_by(store).log.table.generation > generation


def test_a_put_wakes_readers_that_wait(tmp_path: Path) -> None:
    with lakelog.open(tmp_path, accelerator="native", flush="none", dispatchers=()) as store:
        store.put(MESSAGE)
        page = WakePage.open(FILES, tmp_path)
        assert page is not None
        for put in (store.put, lambda each: store.put_batch([each] * 2)):
            page.ask()
            put(MESSAGE)
            assert page.asked[FLAG] == 0


# --- closed stores, forks, and several processes ---


def test_a_closed_store_refuses(store: lakelog.Store) -> None:
    puts = native_puts(store)
    store.close()
    assert puts.put(MESSAGE) is None
    with pytest.raises(lakelog.LakelogError, match="closed"):
        store.put(MESSAGE)


def test_a_forked_child_writes_nothing(store: lakelog.Store) -> None:
    end = store.max_offset
    child = os.fork()
    if child == 0:
        try:
            store.put(MESSAGE)
        except lakelog.LakelogError:
            os._exit(7)
        os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert store.max_offset == end
    assert store.put(MESSAGE).queue_offset == 1


BESIDE = """
import sys, lakelog
path, accelerator, count, size = sys.argv[1:]
body = b"x" * (1 if size == "1" else 600)
with lakelog.open(path, accelerator=accelerator) as store:
    for each in range(0, int(count), int(size)):
        message = lakelog.Message("t", body, keys=accelerator, queue_id=0)
        results = [store.put(message)] if size == "1" else store.put_batch([message] * int(size))
        print(*(result.queue_offset for result in results), flush=True)
"""


def beside(path: Path, accelerator: str, count: int, size: int) -> subprocess.Popen[str]:
    """A process that puts ``count`` messages, in batches of ``size``."""
    command = [sys.executable, "-c", BESIDE, str(path), accelerator, str(count), str(size)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.sample(1)
@pytest.mark.parametrize("size", [1, 10, 50])
def test_plain_and_native_processes_append_side_by_side(tmp_path: Path, size: int) -> None:
    path = tmp_path / "s"
    with lakelog.open(path, flush="none", segment_size_bytes=SEGMENT) as store:
        others = [beside(path, each, 1000, size) for each in ("none", "native")]
        mine = [store.put(Message("t", b"mine", queue_id=0)).queue_offset for _ in range(1000)]
        theirs = [[int(line) for line in each.communicate()[0].split()] for each in others]
        assert [each.wait() for each in others] == [0] * 2
        offsets = sorted(offset for each in (mine, *theirs) for offset in each)
        assert offsets == list(range(3000))
        assert all(each == sorted(each) for each in theirs)
        assert store.wait_dispatched()
        assert [each.queue_offset for each in store.read("t", 0)] == offsets


@pytest.mark.sample(2)
@pytest.mark.parametrize("size", [1, 10, 50])
def test_killed_processes_leave_no_hole(tmp_path: Path, size: int) -> None:
    path, acknowledged = tmp_path / "s", 0
    with lakelog.open(path, flush="none", segment_size_bytes=SEGMENT) as store:
        for turn in range(KILLS):
            writer = beside(path, "none" if turn % 2 else "native", 100_000, size)
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(20 + turn * 300 // size)]
            writer.send_signal(signal.SIGKILL)
            lines += writer.communicate()[0].splitlines(keepends=True)
            acknowledged += sum(line.endswith("\n") for line in lines)
            store.put(Message("t", b"mine", queue_id=0))
        assert store.wait_dispatched()
        found = list(store.read("t", 0))
        assert [each.queue_offset for each in found] == list(range(len(found)))
        assert acknowledged * size + KILLS <= len(found) <= (acknowledged + KILLS) * size + KILLS


@pytest.mark.parametrize("size", [1, 3])
def test_a_write_that_fails_fails_the_store(tmp_path: Path, size: int) -> None:
    store = lakelog.open(tmp_path / "s", accelerator="native", flush="inline")
    store.put(Message("t", b"", queue_id=0))
    segments = store._current.last().owned.log.segments  # type: ignore[union-attr]  # an owner's
    assert segments.window is not None
    number, *rest, _, below = segments.window
    with open(os.devnull, "rb") as unwritable:
        segments.window = (number + 1_000_000, *rest, unwritable.fileno(), below)
        with pytest.raises(StoreFailed, match="cannot write to the log") as caught:
            store.put_batch([Message("t", b"", queue_id=0)] * size)
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(lakelog.PutRefused, match="the store failed"):
        store.put(Message("t", b"", queue_id=0))
    with pytest.raises(StoreFailed):
        store.close()
    with lakelog.open(tmp_path / "s") as reopened:
        assert reopened.put(Message("t", b"", queue_id=0)).queue_offset == 1
