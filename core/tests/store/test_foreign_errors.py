"""A strategy fails behind an append: puts get an error that says so, and the store goes on."""

from __future__ import annotations

import copy
import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.tests.registry.samples import plugin
from core.tests.store.support import SEGMENT, open_small
from lakelog import Message, PutRefused, PutStatus
from lakelog.errors import StoreFailed, StrategyFailed
from lakelog.interfaces import Factory, Kind, NoSettings
from lakelog_testing.crash.opener import owned_by

pytestmark = pytest.mark.both_ways


class Fault(Exception):
    """Of somebody's strategy."""


M = Message("t", b"x", queue_id=0)
PUTS: dict[str, Callable[[Any], Any]] = {
    "put": lambda store: store.put(M),
    "put_batch": lambda store: store.put_batch([M, M]),
    "put_async": lambda store: store.put_async(M).result(10),
    "put_batch_async": lambda store: store.put_batch_async([M, M]).result(10),
    "put_columns": lambda store: store.put_columns("t", [b"x", b"x"], queue_ids=0),
}


class Answers:
    """A flush strategy or a replicator that answers its second put by what it is given."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.answer = answer
        self.heard = 0

    def start(self, log: object) -> None:
        """Needs no log."""

    def submit(self, end_offset: int, wait: bool) -> Any:
        self.heard += 1
        return self.answer() if self.heard == 2 else PutStatus.PUT_OK

    def close(self) -> None:
        """Keeps nothing."""


def raising(error: BaseException) -> Callable[[], Any]:
    def raise_it() -> Any:
        raise error

    return raise_it


class Came:
    """An outcome that comes to something, or to a fault."""

    def __init__(self, come: Callable[[], Any]) -> None:
        self.come = come

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> Any:
        return self.come()

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        fn(self)


ANSWERS: dict[str, tuple[Callable[[], Any], str]] = {
    "raises": (raising(Fault("why")), "raised Fault: why"),
    "says it is not in the log": (
        raising(PutRefused(PutStatus.UNKNOWN_ERROR, "why")),
        "raised PutRefused: UNKNOWN_ERROR: why",
    ),
    "None": (lambda: None, "returned None, which is no PutStatus and no future of one"),
    "a number": (lambda: 7, "returned 7, which is no PutStatus and no future of one"),
    "a status of what is not in the log": (
        lambda: PutStatus.MESSAGE_ILLEGAL,
        "answered MESSAGE_ILLEGAL, which is for messages not in the log",
    ),
    "a future that raises": (
        lambda: Came(raising(Fault("at last"))),
        "raised Fault: at last",
    ),
    "a future of None": (lambda: Came(lambda: None), "came to None, which is no PutStatus"),
    "a future of such a status": (
        lambda: Came(lambda: PutStatus.UNKNOWN_ERROR),
        "answered UNKNOWN_ERROR, which is for messages not in the log",
    ),
}
KINDS = {
    "flush": (Kind.FLUSH_STRATEGY, "flush strategy 'odd'", "FLUSH_DISK_TIMEOUT"),
    "replicator": (Kind.REPLICATOR, "replicator 'odd'", "FLUSH_SLAVE_TIMEOUT"),
}


def odd(kind: str, answer: Callable[[], Any]) -> dict[str, Any]:
    factory = Factory(KINDS[kind][0], "odd", NoSettings, lambda *_: Answers(answer))
    hook = KINDS[kind][0].value
    return {"plugins": [plugin("oddly", **{hook: lambda: [factory]})], kind: "odd"}


@pytest.mark.sample(20)
@pytest.mark.parametrize("put", PUTS)
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("kind", KINDS)
def test_it_names_the_strategy_and_says_not_to_put_again(
    tmp_path: Path, kind: str, answer: str, put: str
) -> None:
    given, did = ANSWERS[answer]
    with open_small(tmp_path, **odd(kind, given)) as store:
        store.put(M)
        with pytest.raises(StrategyFailed) as caught:
            PUTS[put](store)
        error, end = caught.value, owned_by(store).log.appended
        assert str(error).startswith(f"plugin 'oddly': its {KINDS[kind][1]} {did}; the messages")
        assert f"in the log all the same, before offset {end}: do not put them again" in str(error)
        assert {each.status.name for each in error.accepted} == {KINDS[kind][2]}
        assert [each.queue_offset for each in error.accepted] == (
            [1] if put in ("put", "put_async") else [1, 2]
        )
        for copied in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert (str(copied), list(copied.accepted)) == (str(error), list(error.accepted))
        stored = [each.physical_offset for each in store.scan()]
        assert stored[1:] == [each.physical_offset for each in error.accepted]
        assert store.max_offset == end
        again = store.put(M)
        assert (again.status, again.physical_offset) == (PutStatus.PUT_OK, end)
        store.wait_dispatched()
        assert len(store.get("t", 0, 0, 10).messages) == len(stored) + 1


@pytest.mark.parametrize("put", ["put_batch", "put_batch_async"])
def test_pieces_behind_the_failed_one_are_not_in_the_log(tmp_path: Path, put: str) -> None:
    many = [Message("t", b"%04d" % at + b"." * 1000, queue_id=0) for at in range(100)]
    with open_small(tmp_path, **odd("flush", lambda: None)) as store:
        with pytest.raises(StrategyFailed) as caught:
            store.put_batch(many) if put == "put_batch" else store.put_batch_async(many).result(10)
        stored = [each.physical_offset for each in store.scan()]
        assert SEGMENT // 2048 < len(stored) < 100
        assert [each.physical_offset for each in caught.value.accepted] == stored


def test_a_log_that_failed_says_so_itself(tmp_path: Path) -> None:
    failure = StoreFailed("the disk", path=tmp_path)
    with open_small(tmp_path, **odd("flush", raising(failure))) as store:
        store.put(M)
        with pytest.raises(StoreFailed, match="the disk"):
            store.put(M)


@pytest.mark.parametrize("put", ["put", "put_batch"])
def test_an_exception_of_a_signals_handler_is_no_fault_of_the_strategy(
    tmp_path: Path, put: str
) -> None:
    def handler(_number: int, _frame: object) -> None:
        raise Fault("of the handler")

    def signalled() -> PutStatus:
        os.kill(os.getpid(), signal.SIGUSR1)
        return PutStatus.PUT_OK

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with open_small(tmp_path, **odd("flush", signalled)) as store:
            store.put(M)
            with pytest.raises(Fault, match="of the handler"):
                PUTS[put](store)
    finally:
        signal.signal(signal.SIGUSR1, before)
