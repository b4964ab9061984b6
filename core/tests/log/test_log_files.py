"""What section and group commit ask of a real log, and when staged bytes reach the page cache."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from core.tests.store.support import (
    SEGMENT,
    a_record_of,
    bodies,
    fill,
    open_small,
    read_small,
    segments,
)
from core.tests.store.test_interrupted import APPENDING
from lakelog import Message, Store
from lakelog.builtin import InlineFlush, NoFlush
from lakelog.errors import StoreFailed
from lakelog.hooks import CommitRules, FlushStrategy
from lakelog.processes.queue_table import FIRST_SLOTS
from lakelog.processes.shared_page import APPENDED, INTENT_END, INTENT_START, MARKED
from lakelog.store.strategies import PAGE_BYTES, Committing, is_due
from lakelog_testing import FakeLog, interrupted
from lakelog_testing.crash.opener import owned_by
from tests.support.sampling import at_every, every
from tests.support.waiting import until

NEXT = Message("t", b"next", queue_id=0)


def begun(store: Store, start: int, end: int) -> None:
    words = owned_by(store).positions.words
    words[INTENT_START], words[INTENT_END] = start, end


@pytest.mark.parametrize("written", ["all", "the second half"])
def test_what_was_not_committed_is_zeroed(tmp_path: Path, written: str) -> None:
    """A copy that was cut leaves no prefix, and nothing of it behind what comes next."""
    with open_small(tmp_path) as store:
        first, lost = fill(store, 2, body_bytes=4000)
        log, words = owned_by(store).log, owned_by(store).positions.words
        log.table._words[log.table._known["t", 0]] = 1  # as if the second had not come
        words[APPENDED] = first.end_offset
        if written != "all":
            log.segments.overwrite(first.end_offset, bytes(lost.size // 2))
        begun(store, first.end_offset, lost.end_offset)
        result = store.put(NEXT)
        assert (result.physical_offset, result.queue_offset) == (first.end_offset, 1)
        assert words[INTENT_END] == 0
        held = segments(tmp_path)[0].read_bytes()
        assert not any(held[result.end_offset :])
    with open_small(tmp_path) as store:
        assert store.recovery is not None
        assert store.recovery.clean
        assert bodies(store.scan())[1:] == [b"next"]


def test_committed_records_that_are_damaged_fail_the_store(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    (result,) = fill(store, 1)
    owned_by(store).log.segments.overwrite(100, b"damage")
    begun(store, 0, result.end_offset)
    with pytest.raises(StoreFailed, match="a record that was appended is damaged"):
        store.put(NEXT)
    with pytest.raises(StoreFailed):
        store.close()


def test_a_copy_that_was_interrupted_leaves_nothing_behind(tmp_path: Path) -> None:
    """A shorter record comes in its place; the rest of it would stand behind the log."""
    with open_small(tmp_path, accelerator="none") as store:
        store.put(NEXT)
        with write_interrupted(store, 0), pytest.raises(KeyboardInterrupt):
            store.put(Message("t", b"x" * 4000, queue_id=0))
        end = store.put(NEXT).end_offset
        assert not any(segments(tmp_path)[0].read_bytes()[end:])


def test_another_process_goes_on_behind_a_roll_that_nothing_followed(tmp_path: Path) -> None:
    """The log ends with a segment then, and not within the next one."""
    with (
        open_small(tmp_path, accelerator="none") as store,
        open_small(tmp_path, accelerator="none") as other,
    ):
        other.put(a_record_of(1000))
        store.put(a_record_of(SEGMENT - 2000))
        with write_interrupted(store, SEGMENT), pytest.raises(KeyboardInterrupt):
            store.put(a_record_of(2000))
        assert owned_by(store).log.appended == SEGMENT
        assert other.put(a_record_of(2000)).physical_offset == SEGMENT
        assert len(list(store.scan())) == 3
        assert [each.stat().st_size for each in segments(tmp_path)] == [SEGMENT] * 2


@contextmanager
def write_interrupted(store: Store, least_offset: int) -> Iterator[None]:
    """Interrupt the next write at this offset of the log or behind it, after its copy."""
    log = owned_by(store).log
    write = log._write

    def interrupted_write(position: int, data: Any) -> None:
        write(position, data)
        if position >= least_offset:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log, "_write", interrupted_write)
        yield


def test_queues_that_are_new_to_a_process_end_behind_what_was_committed(tmp_path: Path) -> None:
    """A dead process had added so many that the table of queues was replaced by a larger one."""
    given: dict[str, Any] = {"dispatchers": []}  # without files per queue
    with open_small(tmp_path, **given) as store, open_small(tmp_path, **given) as other:
        other.put(NEXT)
        store.put_batch([Message(f"topic {number}", b"") for number in range(FIRST_SLOTS)])
        last = store.put(Message("new", b"", queue_id=0))
        table = owned_by(store).log.table
        table._words[table._known["new", 0]] = 0  # it died before it raised the end
        begun(store, last.physical_offset, last.end_offset)
        assert other.put(Message("new", b"", queue_id=0)).queue_offset == 1


def test_the_repair_of_a_roll_takes_no_disk_space(tmp_path: Path) -> None:
    """Only the blank record was written; blocks up to the end of the segment may be missing."""
    size = 1 << 20
    with open_small(tmp_path, segment_size_bytes=size, allocation_step_bytes=SEGMENT) as store:
        end = fill(store, 2)[-1].end_offset
        before = segments(tmp_path)[0].stat().st_blocks
        begun(store, end, size)
        assert store.put(NEXT).physical_offset == end
        assert segments(tmp_path)[0].stat().st_blocks == before


@at_every(7)
def test_a_roll_that_was_interrupted(tmp_path: Path, stride: int) -> None:
    """The next put closes the segment, or goes on in the next one; no hole, and no segment lost."""
    places = set[int]()
    for at in every(stride):
        assert at < 1000
        path = tmp_path / str(at)
        with open_small(path) as store:
            store.put(a_record_of(SEGMENT - 1000))
            work = partial(store.put, a_record_of(2000))
            place = interrupted(work, at, APPENDING).place
            result = store.put(a_record_of(2000))
            places.add(result.physical_offset)
            count = len(list(store.scan()))
            assert result.queue_offset == count - 1, f"step {at}"
            assert store.wait_dispatched(result.end_offset)
        with open_small(path) as store:
            assert store.recovery is not None
            assert store.recovery.clean, f"step {at}"
            assert not store.recovery.changed, f"step {at}"
            assert len(list(store.scan())) == count
        assert len(segments(path)) == 2
        if place is None:
            break
    assert places == {SEGMENT, SEGMENT + 2000}


def written_again(store: Store, patched: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    found = []
    held = owned_by(store).segments
    overwrite = held.overwrite

    def noted(offset: int, data: Any) -> None:
        found.append((offset, offset + len(data)))
        overwrite(offset, data)

    patched.setattr(held, "overwrite", noted)
    return found


def test_what_a_dead_leader_may_have_lost_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all segments of it; only the kernel knows what that one's sync gave."""
    with open_small(tmp_path) as store:
        durable = fill(store, 5)[-1].end_offset
        store.flush()
        end = fill(store, 80)[-1].end_offset
        content = b"".join(each.read_bytes() for each in segments(tmp_path))
        owned_by(store).positions.words[MARKED] = end
        ranges = written_again(store, monkeypatch)
        assert store.flush() == end
        assert len(segments(tmp_path)) == 3
        assert (ranges[0][0], ranges[-1][1]) == (durable, end)
        assert all(one[1] == other[0] for one, other in pairwise(ranges))
        assert b"".join(each.read_bytes() for each in segments(tmp_path)) == content


def test_damage_is_not_written_again(tmp_path: Path) -> None:
    """The page cache lost a page that was never durable: nothing behind it counts as such."""
    store = open_small(tmp_path)
    store.flush()
    end = fill(store, 5)[-1].end_offset
    descriptor = os.open(segments(tmp_path)[0], os.O_WRONLY)
    os.pwrite(descriptor, bytes(100), 600)
    os.close(descriptor)
    owned_by(store).positions.words[MARKED] = end
    with pytest.raises(StoreFailed, match="a record that was appended is damaged"):
        store.flush()
    assert store.flushed_offset == 0
    with suppress(StoreFailed):
        store.close()
    with read_small(tmp_path) as reader:
        assert reader.flushed_offset == 0


class Heedful(NoFlush):
    """Counts how often it is woken."""

    woken = 0

    def start(self, log: object) -> None: ...

    def wake(self) -> None:
        self.woken += 1


def test_a_commit_is_due_by_pages_and_by_time() -> None:
    for pages, ms, appended, idle_seconds, due in (
        (4, 200, 0, 60, False),
        (4, 200, 1, 0.2, True),
        (4, 1000, 1, 0.2, False),
        (4, 1000, 4 * PAGE_BYTES - 1, 0.2, False),
        (4, 1000, 4 * PAGE_BYTES, 0.2, True),
        (0, 1000, 1, 0.0, True),
        (0, 1000, 0, 0.0, False),
    ):
        assert is_due(CommitRules(200, pages, ms), appended, 0, idle_seconds) is due


def test_commits_come_by_themselves_and_wake_the_strategy() -> None:
    log, inner = FakeLog(staged=True), Heedful()
    flush = Committing(inner, CommitRules(1, 4, 5))
    flush.start(log)
    end = log.append()
    until(lambda: log.committed == end and inner.woken == 1)
    time.sleep(0.05)
    assert inner.woken == 1, "nothing was appended since"
    flush.close()


def test_a_commit_that_fails_ends_the_commits_and_wakes_the_strategy() -> None:
    class Broken(FakeLog):
        commits = 0

        def commit(self) -> int:
            self.commits += 1
            raise StoreFailed("it is broken")

    log, inner = Broken(staged=True), Heedful()
    flush = Committing(inner, CommitRules(1, 0, 0))
    flush.start(log)
    log.append()
    until(lambda: inner.woken == 1)
    time.sleep(0.02)
    assert log.commits == 1
    flush.close()


@pytest.mark.parametrize(
    "flush",
    [NoFlush(), InlineFlush(), Committing(NoFlush(), CommitRules(60_000))],
    ids=["none", "inline", "none beside commits"],
)
def test_what_survives_the_process_is_committed_by_the_put(flush: FlushStrategy) -> None:
    log = FakeLog(staged=True)
    flush.start(log)
    end = log.append()
    flush.submit(end, False)
    assert (log.committed, log.flushed) == (end, 0)
    flush.close()
    assert log.flushed == end


@pytest.mark.both_ways
def test_what_was_appended_during_a_sync_counts_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "s") as store:
        assert store._owned is not None
        log = store._owned.log
        sync, first = log.segments.sync, store.put(Message("t", b""))

        def slow(start: int, end: int) -> None:
            sync(start, end)
            time.sleep(0.002)
            store.put(Message("t", b""))

        monkeypatch.setattr(log.segments, "sync", slow)
        assert log.sync() == first.end_offset
        assert log.positions.flushed_timestamp_ms == first.store_timestamp_ms
        monkeypatch.setattr(log.segments, "sync", sync)
        assert log.sync() == log.appended


def test_the_log_says_that_a_commit_was_slow(caplog: pytest.LogCaptureFixture) -> None:
    class Slow(FakeLog):
        def commit(self) -> int:
            time.sleep(0.51)
            return super().commit()

    log, inner = Slow(staged=True), Heedful()
    flush = Committing(inner, CommitRules(1, 0, 0))
    with caplog.at_level(logging.WARNING, "lakelog"):
        flush.start(log)
        log.append()
        until(lambda: inner.woken == 1)
        flush.close()
    assert "a commit to the page cache took" in caplog.text
