"""The log reaches the dispatchers in order, all of it, and nothing is passed over in silence."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from core.tests.registry.samples import plugin
from core.tests.store.support import SEGMENT, fill, open_small, overwrite
from lakelog import Message
from lakelog.dispatch import runner as reput
from lakelog.dispatch.run import DispatchCursor, NamedDispatcher
from lakelog.errors import DispatchStopped
from lakelog.interfaces import Factory, Kind, NoSettings
from plugins.format.tests.codec.handmade import record, run
from tests.support.waiting import until

if TYPE_CHECKING:
    from lakelog.codec import RecordBatch

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
