"""A put that Ctrl-C ends, or another exception of a signal's handler, wherever that comes.

It is tried at the points where the interpreter runs handlers.
"""

from __future__ import annotations

import errno
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from core.tests.registry.samples import plugin
from core.tests.store.support import SEGMENT, bodies, open_small
from lakelog import Message, PutRefused, Store
from lakelog import dispatch as reput
from lakelog.errors import StoreFailed
from lakelog.files.filesystem import not_opened
from lakelog.hooks import Factory, Kind, NoSettings
from lakelog.results import PutStatus
from lakelog_testing import interrupted
from lakelog_testing.crash.opener import owned_by
from plugins.testing.tests.stagedwriters import SoundlyStaged
from tests.support.sampling import at_every, every
from tests.support.waiting import until

pytestmark = pytest.mark.both_ways

APPENDING = (
    *("appender", "commit_log", "positions", "segments", "append_section", "queue_table", "locks"),
    "lakelog_native",
)
"""Modules with the points, as for :func:`lakelog_testing.interrupted`."""
MESSAGES = [Message("t", b"%d" % number, queue_id=0) for number in range(3)]
VERBS: dict[str, Callable[[Store], object]] = {
    "put": lambda store: store.put(MESSAGES[0]),
    "put_batch": lambda store: store.put_batch(MESSAGES),
    "put_batch_async": lambda store: store.put_batch_async(MESSAGES).result(),
}


def put_async(store: Store) -> None:
    store.put_async(MESSAGES[0]).result()


@pytest.fixture(autouse=True)
def _dispatched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reput, "GATHER_SECONDS", 0.001)


def staged_writer() -> object:
    def offer() -> list[Factory]:
        return [Factory(Kind.WRITER, "staged", NoSettings, lambda *_: SoundlyStaged())]

    return plugin(lakelog_writers=offer)


def steps(verb: str, path: Path, stride: int, **more: Any) -> Iterator[tuple[Store, int]]:
    """A store each, in which that verb was interrupted so many steps later."""
    for at in every(stride):
        store = open_small(path / str(at), **more)
        try:
            store.put(Message("t", b"before", queue_id=0))
            positions = owned_by(store).positions
            until(lambda: positions.sleeper is not None)  # noqa: B023  # it is called here
            if interrupted(partial(VERBS[verb], store), at, APPENDING).place is None:
                return
            yield store, at
        finally:
            with suppress(StoreFailed):
                store.close()


@at_every(7)
@pytest.mark.parametrize("verb", VERBS)
def test_a_store_goes_on_after_a_put_was_interrupted(
    verb: str, tmp_path: Path, stride: int
) -> None:
    """All or nothing of it is in the log; at every second step, nothing is put behind it."""
    went_on = 0
    for store, at in steps(verb, tmp_path, stride):
        went_on += 1
        is_last = went_on % 2 == 0
        if is_last:  # a thread that sleeps dispatches it, and it becomes durable
            assert store.wait_dispatched(store.max_offset), f"step {at}"
            assert store.max_offset == store.flush(), f"step {at}"
        else:
            result = store.put(Message("t", b"behind", queue_id=0))
            assert store.wait_dispatched(result.end_offset), f"step {at}: nothing is seen any more"
        found = bodies(store.scan())
        expected = [[b"before", *between] for between in ([], [b"0"], [b"0", b"1", b"2"])]
        assert found in (expected if is_last else [[*each, b"behind"] for each in expected])
        assert [bytes(each.body) for each in store.get("t", 0, 0).messages] == found
        store.close()
        with open_small(tmp_path / str(at)) as again:
            assert again.recovery is not None
            assert again.recovery.clean, f"step {at}"
            result = again.put(Message("t", b"again", queue_id=0))
            assert result.queue_offset == len(found), f"step {at}: a hole in the queue"
    assert went_on > 1


def test_what_an_interrupted_put_has_appended_is_dispatched(tmp_path: Path) -> None:
    """Also if the handler raises where the put wakes the thread that dispatches."""
    with open_small(tmp_path) as store:
        store.put(Message("t", b"before"))
        positions = owned_by(store).positions
        for at in itertools.count():
            until(lambda: positions.sleeper is not None)
            place = interrupted(partial(VERBS["put"], store), at, ("positions",)).place
            assert store.wait_dispatched(store.max_offset), f"point {at}: {place}"
            if place is None:
                break
        assert at > (0 if sys.version_info >= (3, 12) else 2)  # from 3.12 on, one point is there


@at_every(1)
def test_a_refused_put_that_was_interrupted_leaves_nothing_locked(
    tmp_path: Path, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where its error is handled already: puts of other threads then waited for ever."""

    def no_room(_: int) -> None:
        raise not_opened(OSError(errno.EMFILE, "Too many open files"), "open", tmp_path)

    def work() -> None:
        with suppress(PutRefused):
            store.put(Message("t", b"x" * 2000))

    with open_small(tmp_path) as store:
        store.put(Message("t", b"x" * (SEGMENT - 1000)))
        owned = owned_by(store)
        monkeypatch.setattr(owned.segments, "prepare_roll", no_room)
        for at in every(stride):
            place = interrupted(work, at, ("commit_log", "append_section")).place
            assert not owned.log.section.is_mine(), f"point {at}: {place}"
            if place is None:
                break
        assert at > 10
        assert len(list(store.scan())) == 1


def test_a_staged_writer_whose_put_was_interrupted(tmp_path: Path) -> None:
    """What it has in memory cannot be taken back: the store goes on, or says that it failed."""
    went_on, failures = 0, []
    for store, at in steps("put", tmp_path, 3, plugins=[staged_writer()], writer="staged"):
        try:
            store.put(Message("t", b"behind", queue_id=0))
            went_on += 1
        except StoreFailed as error:
            failures.append(str(error.__cause__))
        with suppress(StoreFailed):
            store.close()
        with open_small(tmp_path / str(at)) as again:
            found = bodies(again.scan())
            assert found[0] == b"before", f"step {at}"
            assert found[1:] in ([], [b"0"], [b"behind"], [b"0", b"behind"]), f"step {at}"
    assert went_on > len(failures)
    assert all("an append was interrupted" in each for each in failures)


@at_every(7)
@pytest.mark.parametrize("verb", VERBS)
def test_a_handler_that_puts_is_refused_inside_of_an_append(
    verb: str, tmp_path: Path, stride: int
) -> None:
    """And is served elsewhere: what is put there comes before or behind what it interrupts."""
    told: list[PutStatus] = []
    for at in every(stride):
        with open_small(tmp_path / str(at)) as store:
            act = partial(put_in_a_handler, store, told)
            if interrupted(partial(VERBS[verb], store), at, APPENDING, act).place is None:
                break
            assert store.wait_dispatched(store.put(Message("t", b"behind", queue_id=0)).end_offset)
            found = bodies(store.scan())
            assert [bytes(each.body) for each in store.get("t", 0, 0).messages] == found
            assert (b"handler" in found) == (told[-1] is PutStatus.PUT_OK), f"step {at}"
    assert set(told) == {PutStatus.PUT_OK, PutStatus.SERVICE_NOT_AVAILABLE}


@at_every(7)
def test_a_handler_that_puts_in_the_middle_of_a_sync(tmp_path: Path, stride: int) -> None:
    """It syncs for itself, or says that it could not: it never waits for what it interrupts."""
    told: list[PutStatus] = []

    def durable_put(store: Store) -> None:
        assert store.put(MESSAGES[0]).status is PutStatus.PUT_OK

    def put(store: Store) -> None:
        result = store.put(Message("t", b"handler", queue_id=0))
        told.append(result.status)
        if result.status is PutStatus.PUT_OK:
            assert store.flushed_offset >= result.end_offset

    for at in every(stride):
        with open_small(tmp_path / str(at), flush="inline", on_late="return") as store:
            work, act = partial(durable_put, store), partial(put, store)
            if interrupted(work, at, ("group_sync",), act).place is None:
                break
            assert store.put(Message("t", b"behind")).status is PutStatus.PUT_OK
            assert len(list(store.scan())) == 3
    statuses = {PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT}
    assert set(told) == statuses or (stride > 1 and set(told) < statuses)


@at_every(7)
def test_an_exception_in_a_wait_for_a_future_leaves_nothing_locked(
    tmp_path: Path, stride: int
) -> None:
    """Another thread then puts durably, and the store is closed."""
    waits = ("put_future", "threads", "locks")
    for at in every(stride):
        with open_small(tmp_path / str(at), flush="inline") as store:
            work = partial(put_async, store)
            if interrupted(work, at, waits).place is None:
                break
            assert store.put_async(MESSAGES[1]).result(20).status is PutStatus.PUT_OK, f"step {at}"


def put_in_a_handler(store: Store, told: list[PutStatus]) -> None:
    try:
        told.append(store.put(Message("t", b"handler", queue_id=0)).status)
    except PutRefused as error:
        told.append(error.status)
