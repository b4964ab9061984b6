"""A put that Ctrl-C ends, or another exception of a signal's handler, wherever that comes.

It is tried between any two steps of the interpreter: a tracer raises where a handler would run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from core.tests.store.support import bodies, open_small
from lakelog import Message, PutRefused, Store
from lakelog.errors import StoreFailed
from lakelog.status import PutStatus

SOURCES = ("lakelog/appender", "lakelog/commitlog", "lakelog/positions", "lakelog/yieldlock")
MESSAGES = [Message("t", b"%d" % number, queue_id=0) for number in range(3)]
VERBS: dict[str, Callable[[Store], object]] = {
    "put": lambda store: store.put(MESSAGES[0]),
    "put_batch": lambda store: store.put_batch(MESSAGES),
    "put_batch_async": lambda store: store.put_batch_async(MESSAGES).result(),
}


class Handler:
    """Acts at the n-th call of a function of lakelog, or return from one, while it is on.

    Those are where the interpreter looks for signals: at the begin of a function, and behind a
    call. A call of a built-in function counts, too.
    """

    def __init__(self, at: int, act: Callable[[], object]) -> None:
        self.left = at
        self.act = act

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "c_return", "return"):
            return
        if not any(each in frame.f_code.co_filename for each in SOURCES):
            return
        self.left -= 1
        if self.left == -1:
            sys.setprofile(None)
            self.act()


def interrupt() -> None:
    raise KeyboardInterrupt


def interrupted(work: Callable[[], object], at: int) -> bool:
    """Whether ``work`` was interrupted; not if it has fewer steps."""
    sys.setprofile(Handler(at, interrupt))
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def steps(verb: str, path: Path) -> Iterator[tuple[Store, int]]:
    """A store each, in which that verb was interrupted a step later."""
    for at in count():
        store = open_small(path / str(at))
        try:
            store.put(Message("t", b"before", queue_id=0))
            if not interrupted(partial(VERBS[verb], store), at):
                return
            yield store, at
        finally:
            with suppress(StoreFailed):
                store.close()


@pytest.mark.parametrize("verb", VERBS)
def test_a_store_goes_on_after_a_put_was_interrupted(verb: str, tmp_path: Path) -> None:
    """All or nothing of it is in the log, and what comes next is seen; or the store says it failed.

    That is so in the few steps between the write and the count of what was written.
    """
    went_on = failed = 0
    for store, at in steps(verb, tmp_path):
        if not store.is_writable:
            with pytest.raises(PutRefused, match="interrupted by KeyboardInterrupt"):
                store.put(MESSAGES[0])
            failed += 1
            continue
        result = store.put(Message("t", b"behind", queue_id=0))
        went_on += 1
        assert store.wait_dispatched(result.end_offset), f"step {at}: nothing is seen any more"
        found = bodies(list(store.scan()))
        whole = [[], [b"0"], [b"0", b"1", b"2"]]
        assert (found[0], found[-1]) == (b"before", b"behind"), f"step {at}"
        assert found[1:-1] in whole, f"step {at}"
        assert result.queue_offset == len(found) - 1, f"step {at}: a hole in the queue"
        assert [bytes(each.body) for each in store.get("t", 0, 0).messages] == found
    assert went_on > 5
    assert failed < went_on / 2


@pytest.mark.parametrize("verb", VERBS)
def test_what_was_interrupted_is_seen_without_another_put(verb: str, tmp_path: Path) -> None:
    """What is in the log is confirmed: nobody waits for a put that nobody ends."""
    for store, at in steps(verb, tmp_path):
        if store.is_writable:
            assert store.wait_dispatched(store.max_offset), f"step {at}"
            assert store.max_offset == store.flush(), f"step {at}"


def test_a_failed_store_opens_again(tmp_path: Path) -> None:
    """With everything that was acknowledged."""
    for store, at in steps("put", tmp_path):
        if store.is_writable:
            continue
        with suppress(StoreFailed):
            store.close()
        with open_small(tmp_path / str(at)) as again:
            assert again.put(Message("t", b"again", queue_id=0)).queue_offset in (1, 2)
            assert bodies(list(again.scan()))[0] == b"before"


@pytest.mark.parametrize("verb", VERBS)
def test_a_handler_that_puts_is_refused_inside_of_an_append(verb: str, tmp_path: Path) -> None:
    """And is served elsewhere: what is put there comes before or behind what it interrupts."""
    told: list[PutStatus] = []
    for at in count():
        with open_small(tmp_path / str(at)) as store:
            handler = Handler(at, partial(put_in_a_handler, store, told))
            sys.setprofile(handler)
            try:
                VERBS[verb](store)
            finally:
                sys.setprofile(None)
            if handler.left >= 0:
                break
            assert store.wait_dispatched(store.put(Message("t", b"behind", queue_id=0)).end_offset)
            found = bodies(list(store.scan()))
            assert [bytes(each.body) for each in store.get("t", 0, 0).messages] == found
            assert (b"handler" in found) == (told[-1] is PutStatus.PUT_OK), f"step {at}"
    assert set(told) == {PutStatus.PUT_OK, PutStatus.SERVICE_NOT_AVAILABLE}


def put_in_a_handler(store: Store, told: list[PutStatus]) -> None:
    try:
        told.append(store.put(Message("t", b"handler", queue_id=0)).status)
    except PutRefused as error:
        told.append(error.status)
