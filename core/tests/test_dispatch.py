"""The log reaches the dispatchers in order, all of it; strategies that fail are named by errors."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from core.tests.format.handmade import record, run
from core.tests.registry.samples import plugin
from core.tests.store.support import SEGMENT, fill, open_small, overwrite
from lakelog import Message, PutRefused, PutStatus
from lakelog import dispatch as reput
from lakelog.dispatch import DispatchCursor, NamedDispatcher
from lakelog.errors import DispatchStopped, StoreFailed, StrategyFailed
from lakelog.hooks import Factory, Kind, NoSettings
from lakelog_testing.crash.opener import owned_by
from tests.support.waiting import until

if TYPE_CHECKING:
    from lakelog.format.record_batch import RecordBatch

pytestmark = pytest.mark.both_ways


class Recorder:
    """A dispatcher that remembers the bodies it was given, and can be made to fail."""

    directories = ()

    def __init__(self, name: str, calls: list[tuple[str, bytes]]) -> None:
        self.name = name
        self.calls = calls
        self.seen: list[bytes] = []
        self.bad: bytes | None = None
        self.start = 0
        self.flushed = self.closed = 0

    def resume(self, minimum: int, end: int) -> int:
        assert minimum <= end
        return min(max(self.start, minimum), end)

    def dispatch(self, batch: RecordBatch) -> None:
        bodies = [bytes(body) for body in batch.bodies]
        if self.bad in bodies:
            raise RuntimeError("indigestible")
        self.seen += [body for body in bodies if body not in self.seen]
        self.calls += [(self.name, body) for body in bodies]

    def truncate(self, end_offset: int) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        self.flushed += 1

    def close(self) -> None:
        self.closed += 1


def _gives(made: Recorder) -> Callable[[Any, Any], Recorder]:
    return lambda _settings, _context: made


class Two:
    """Two dispatchers on offer, and what they were given, in the order of the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bytes]] = []
        self.a, self.b = Recorder("a", self.calls), Recorder("b", self.calls)

    def plugin(self) -> Any:
        def offer() -> list[Factory]:
            return [
                Factory(Kind.DISPATCHER, each.name, NoSettings, _gives(each))
                for each in (self.a, self.b)
            ]

        return plugin(lakelog_dispatchers=offer)

    def open(self, path: Path, order: tuple[str, ...] = ("a", "b"), **more: Any) -> Any:
        return open_small(path, plugins=[self.plugin()], dispatchers=order, **more)


@pytest.fixture
def two() -> Two:
    return Two()


def expected(count: int) -> list[bytes]:
    return [b"%06d" % number + b"." * 394 for number in range(count)]


def test_everything_arrives_in_order_across_segments(tmp_path: Path, two: Two) -> None:
    with two.open(tmp_path / "s") as store:
        fill(store, 200)
        assert store.wait_dispatched()
        assert store.dispatched_offset == store.max_offset
        assert store.dispatch_lag.bytes == store.dispatch_lag.ms == 0
        assert not store.wait_dispatched(store.max_offset + 1, timeout_ms=20)
    assert two.a.seen == two.b.seen == expected(200)
    assert two.a.closed == two.b.closed == 1


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a"), ("b",)])
def test_the_settings_state_the_order(tmp_path: Path, two: Two, order: tuple[str, ...]) -> None:
    with two.open(tmp_path / "s", order) as store:
        store.put(Message("t", b"one"))
        assert store.wait_dispatched()
    assert two.calls == [(name, b"one") for name in order]


def test_open_dispatches_what_one_of_them_lacks(tmp_path: Path, two: Two) -> None:
    with open_small(tmp_path / "s") as store:
        results = fill(store, 50)
    two.a.start, two.b.start = results[40].physical_offset, results[20].physical_offset
    with two.open(tmp_path / "s") as store:
        assert store.dispatched_offset == store.max_offset
    assert two.a.seen == two.b.seen == expected(50)[20:]


def test_one_that_raises_stops_all_at_that_record(tmp_path: Path, two: Two) -> None:
    two.b.bad = expected(60)[30]
    with two.open(tmp_path / "s") as store:
        results = store.put_batch([Message("t", body) for body in expected(60)])
        with pytest.raises(
            DispatchStopped, match=r"dispatcher 'b' failed .* indigestible"
        ) as caught:
            store.wait_dispatched()
        assert caught.value.dispatcher == "b"
        assert caught.value.offset == results[30].physical_offset == store.dispatched_offset
        assert store.dispatch_lag.bytes == store.max_offset - caught.value.offset
        assert store.dispatch_failure is caught.value
        assert two.b.seen == expected(30)
        assert store.put(Message("t", b"puts go on")).queue_offset >= 0
        with pytest.raises(DispatchStopped):
            store.resume_dispatch()
        two.b.bad = None
        store.resume_dispatch()
        assert store.wait_dispatched()
        assert store.dispatch_failure is None
    assert two.a.seen == two.b.seen == [*expected(60), b"puts go on"]


def test_records_gather_until_somebody_waits_for_them(
    tmp_path: Path, two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reput, "GATHER_SECONDS", 60.0)
    with two.open(tmp_path / "s") as store:
        fill(store, 1)
        until(lambda: bool(two.b.seen))
        store.put(Message("t", b"gathers"))
        time.sleep(0.1)
        assert two.b.seen == expected(1)
        assert store.wait_dispatched(timeout_ms=20_000)
        assert two.b.seen == [*expected(1), b"gathers"]
        store.put(Message("t", b"closes"))
    assert two.b.seen[-1] == b"closes"


def test_a_close_waits_for_the_last_records(
    tmp_path: Path, two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on = threading.Event(), threading.Event()
    plain = two.a.dispatch

    def slowly(batch: RecordBatch) -> None:
        began.set()
        assert go_on.wait(60)
        assert not two.a.closed
        plain(batch)

    monkeypatch.setattr(two.a, "dispatch", slowly)
    store = two.open(tmp_path / "s")
    store.put(Message("t", b"one"))
    assert began.wait(60)
    store.put(Message("t", b"two"))
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(store.close)
        time.sleep(0.2)
        go_on.set()
        closing.result(60)
    assert two.a.seen == two.b.seen == [b"one", b"two"]
    assert two.a.closed == two.b.closed == 1


def test_a_log_that_ends_with_a_blank_is_dispatched_to_its_end(tmp_path: Path, two: Two) -> None:
    """The record behind the blank was lost."""
    with open_small(tmp_path / "s") as store:
        while store.put(Message("t", bytes(400))).physical_offset < SEGMENT:
            pass
    overwrite(tmp_path / "s", SEGMENT, bytes(600))
    with two.open(tmp_path / "s") as store:
        assert store.max_offset == SEGMENT
        assert store.dispatched_offset == SEGMENT
        assert store.wait_dispatched(SEGMENT, timeout_ms=1_000)


class Told:
    """Positions that remember each published end of queues and index."""

    def __init__(self, dispatched: int, end: int) -> None:
        self.readable_elsewhere = end
        self.told = [dispatched]

    @property
    def dispatched(self) -> int:
        return self.told[-1]

    @dispatched.setter
    def dispatched(self, offset: int) -> None:
        self.told.append(offset)

    def count_records(self, count: int) -> None:
        """Nothing is shown."""


def test_the_published_end_does_not_go_back_at_a_takeover(tmp_path: Path, two: Two) -> None:
    """A new owner dispatches again what the former one had dispatched."""
    at, pieces = 0, []
    for number in range(10):
        pieces.append(run(record("t", b"", b"%d" % number, number, at), start=at))
        at = pieces[-1].end_offset
    told: Any = Told(pieces[6].end_offset, at)
    recorder: Any = two.a
    nobody: Any = None
    cursor = DispatchCursor(tmp_path, [NamedDispatcher("a", recorder)], 0)
    reput.DispatchRunner(lambda _first, _end: iter(pieces), cursor, told, nobody).complete()
    assert len(two.a.seen) == 10
    assert told.told == sorted(told.told)
    assert told.dispatched == at


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
