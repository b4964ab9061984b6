"""What a put has returned is found by every read, in its own process and in the others."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog import GetStatus, Message, PutResult, Store, dispatch
from lakelog.errors import StoreFailed
from lakelog_queues.finding.get import QueueGetter
from lakelog_queues.store import queue_parts
from plugins.queues.tests.reading.support import QueuesInMemory, log_of_store, put_numbered

pytestmark = pytest.mark.both_ways

_SERVER: Final = multiprocessing.get_context("forkserver")
MANY: Final = 150

Read = Callable[[Store, str, PutResult], bool]

READS: Final[dict[str, Read]] = {
    "get": lambda store, _, put: bool(store.get("t", 0, put.queue_offset, 1).messages),
    "get of all": lambda store, _, put: (
        store.get("t", 0, 0, 4096).next_offset == put.queue_offset + 1
    ),
    "get by tags": lambda store, key, put: (
        [each.tags for each in store.get("t", 0, 0, 1, tags=key).messages] == [key]
        and put.queue_id == 0
    ),
    "get by length": lambda store, _, put: bool(
        store.get("t", 0, put.queue_offset, 1, max_bytes=4096).messages
    ),
    "get_records": lambda store, _, put: bool(store.get_records("t", 0, put.queue_offset).records),
    "get_records of all": lambda store, _, put: (
        len(store.get_records("t", 0, 0, 4096).records) == put.queue_offset + 1
    ),
    "get_columns": lambda store, _, put: bool(
        store.get_columns("t", 0, put.queue_offset, columns=["body"]).batch.num_rows
    ),
    "read": lambda store, key, _: list(store.read("t", 0))[-1].tags == key,
    "query": lambda store, key, _: [each.tags for each in store.query("t", key)] == [key],
    "query_offsets": lambda store, key, put: put.physical_offset in store.query_offsets("t", key),
    "queues": lambda store, _, put: store.queues("t")[0].max_offset == put.queue_offset + 1,
    "queue_bounds": lambda store, _, put: store.queue_bounds("t", 0) == (0, put.queue_offset + 1),
    "queue_units": lambda store, _, put: len(store.queue_units("t", 0, put.queue_offset, 1)) == 1,
    "offset_by_time": lambda store, _, put: (
        store.offset_by_time("t", 0, put.store_timestamp_ms + 1) == put.queue_offset + 1
    ),
    "look_up": lambda store, key, put: store.look_up(put.physical_offset).tags == key,
}


def open_small(path: Path, **more: Any) -> Store:
    return lakelog.open(
        path,
        segment_size_bytes=1 << 20,
        preallocate=False,
        hash_index={"slots": 100, "entries": 4000},
        **more,
    )


def put_keyed(store: Store, number: int) -> tuple[str, PutResult]:
    key = f"k{number}"
    return key, store.put(Message("t", b"x", keys=key, tags=key, queue_id=0))


def missed_by(reader: Store, read: str, *puts: tuple[str, PutResult]) -> list[str]:
    return [key for key, put in puts if not READS[read](reader, key, put)]


@pytest.mark.parametrize("mode", ["owner", "write", "read"])
def test_every_read_finds_what_was_put(tmp_path: Path, mode: Any) -> None:
    with ExitStack() as opened:
        store = reader = opened.enter_context(open_small(tmp_path))
        if mode != "owner":
            reader = opened.enter_context(open_small(tmp_path, mode=mode))
        for number in range(MANY):
            read = list(READS)[number % len(READS)]
            assert not missed_by(reader, read, put_keyed(store, number)), read


@pytest.mark.parametrize("flush", ["none", "timed", "group-commit"])
@pytest.mark.parametrize("writer", ["mmap", "staged"])
def test_with_every_kind_of_durability(tmp_path: Path, writer: str, flush: str) -> None:
    with open_small(tmp_path, writer=writer, flush=flush) as store:
        for number, read in enumerate(READS):
            assert not missed_by(store, read, put_keyed(store, number)), read


def _answer(path: Path, mode: Any, way: Connection) -> None:
    """Put, or read what the other process has put, until there is no more to do."""
    with open_small(path, mode=mode) as store:
        way.send("open")
        while (asked := way.recv()) is not None:
            read, put = asked
            if put is None:
                way.send(put_keyed(store, read))
            else:
                way.send(missed_by(store, read, put))


@pytest.mark.parametrize("mode", ["write", "read"])
def test_another_process_finds_what_was_put(tmp_path: Path, mode: str) -> None:
    with open_small(tmp_path) as store:
        here, there = _SERVER.Pipe()
        other = _SERVER.Process(target=_answer, args=(tmp_path, mode, there))
        other.start()
        try:
            assert here.recv() == "open"
            for number in range(MANY):
                here.send((("get", "query", "queues")[number % 3], put_keyed(store, number)))
                assert here.recv() == []
                if mode == "write":  # and the other way round
                    here.send((-number, None))
                    assert not missed_by(store, "get", here.recv())
        finally:
            here.send(None)
            other.join()
    assert other.exitcode == 0


# --- reads that must not wait: here a wait would last for ever ---


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(dispatch, "CATCH_UP_SECONDS", 3600.0)
    with open_small(tmp_path) as opened:
        yield opened


def replace_dispatch(store: Store, instead: Callable[[Any, Any], None]) -> None:
    """Have the queues call ``instead`` with each batch and the replaced method."""
    queues: Any = queue_parts(store._current.now()).log.dispatchers["consume-queue"]
    queues.dispatch = partial(instead, queues.dispatch)


def test_stopped_dispatching_delays_no_read(store: Store) -> None:
    put_keyed(store, 0)
    assert len(store.get("t", 0, 0).messages) == 1

    def refuse(_dispatch: Any, _batch: Any) -> None:
        raise ValueError("refused")

    replace_dispatch(store, refuse)
    _, put = put_keyed(store, 1)
    assert store.get("t", 0, put.queue_offset).status is GetStatus.OFFSET_OVERFLOW_ONE
    assert len(store.get("t", 0, 0).messages) == 1
    assert store.query("t", "k1") == []
    assert store.dispatch_failure is not None


def test_a_dispatcher_reads_the_store_that_it_serves(store: Store) -> None:
    found: list[int] = []

    def read(dispatch_batch: Any, batch: Any) -> None:
        found.append(len(store.get("t", 0, 0).messages))
        dispatch_batch(batch)

    replace_dispatch(store, read)
    put_keyed(store, 0)
    assert len(store.get("t", 0, 0).messages) == 1
    assert found == [0]


def test_reads_while_this_thread_has_paused_dispatching(store: Store) -> None:
    put_keyed(store, 0)
    assert len(store.get("t", 0, 0).messages) == 1
    runner: Any = queue_parts(store._current.now()).log.dispatching
    with runner.paused():
        put_keyed(store, 1)
        assert len(store.get("t", 0, 0).messages) == 1
    assert len(store.get("t", 0, 0).messages) == 2


def test_a_staged_write_that_fails_delays_no_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seldom = {"commit_interval_ms": 3_600_000, "commit_thorough_interval_ms": 3_600_000}
    with open_small(tmp_path, writer="staged", flush="timed", staged=seldom) as store:
        put_keyed(store, 0)
        assert store.wait_dispatched()

        def fail() -> None:
            raise StoreFailed("the disk is gone")

        runner: Any = queue_parts(store._current.now()).log.dispatching
        monkeypatch.setattr(runner, "_commit", fail)
        monkeypatch.setattr(runner, "wait", lambda *_: pytest.fail("it waits"))
        put_keyed(store, 1)
        assert len(store.get("t", 0, 0).messages) == 1
        monkeypatch.undo()
        assert len(store.get("t", 0, 0).messages) == 2


def test_a_read_of_old_messages_waits_for_no_new_one(store: Store, tmp_path: Path) -> None:
    queues = QueuesInMemory()
    put_numbered(store, 5)
    queues.take_in(store)
    log = log_of_store(store)
    caught_up: list[int] = []

    def catch_up() -> None:
        caught_up.append(1)
        queues.take_in(store)

    getter = QueueGetter(queues, log, lambda: 0, catch_up=catch_up)
    put_numbered(store, 1)
    assert len(getter.get("t", 0, 0, 5).messages) == 5
    assert len(getter.get_records("t", 0, 1, 4).records) == 4
    assert not caught_up
    assert len(getter.get("t", 0, 0, 6).messages) == 6
    assert caught_up
