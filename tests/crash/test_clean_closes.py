"""A clean close loses nothing, whatever threads do: real files and threads, tiny segments.

The simulator holds threads up where a roll may do harm; here, chance brings threads together, as in
a program. The full run says how often.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random
from threading import Barrier, Thread
from typing import Any, Final

import pytest

import lakelog
from lakelog import Message
from lakelog.errors import StoreFailed
from lakelog.files.filesystem import RealFileSystem
from lakelog_testing.crash import CrashPlan
from lakelog_testing.crash.opener import FLUSHES, WRITERS, Opener
from tests.crash.planted import sealed_segment_not_committed

THREADS: Final = 6
SESSIONS: Final = 2
PUTS: Final = 30
MANY: Final = 200
PAIRS: Final = [*product(WRITERS, FLUSHES)]


class Putting(Thread):
    """Puts messages of many sizes, some of which do not wait, until it has put enough.

    :ivar put: bodies by offset, of all messages whose puts returned
    """

    def __init__(self, store: lakelog.Store, rng: Random, begin: Barrier) -> None:
        super().__init__(name="putting")
        self.put: dict[int, bytes] = {}
        self.failure: Exception | None = None
        self._store = store
        self._rng = rng
        self._begin = begin

    def run(self) -> None:
        try:
            self._begin.wait()
            for _ in range(PUTS):
                self._put(self._rng)
        except Exception as error:  # noqa: BLE001  # raised by the thread that waits for this one
            self.failure = error

    def _put(self, rng: Random) -> None:
        count = rng.choice((1, 1, 1, 4))
        wait = rng.random() < 0.5
        messages = [
            Message("t", rng.randbytes(rng.choice((20, 300, 2_500))), wait_store_ok=wait)
            for _ in range(count)
        ]
        results = [self._store.put(messages[0])] if count == 1 else self._store.put_batch(messages)
        for message, result in zip(messages, results, strict=True):
            self.put[result.physical_offset] = bytes(message.body)


def lost(path: Path, opener: Opener, seed: int) -> list[int]:
    """Offsets of messages that are not there after clean closes; raises what puts raised."""
    rng, put = Random(seed), dict[int, bytes]()
    for _ in range(SESSIONS):
        begin = Barrier(THREADS)
        with opener.open(path, RealFileSystem()) as store:
            putting = [Putting(store, Random(rng.random()), begin) for _ in range(THREADS)]
            for each in putting:
                each.start()
            for each in putting:
                each.join()
        for each in putting:
            if each.failure is not None:
                raise each.failure
            put.update(each.put)
    with opener.open(path, RealFileSystem()) as store:
        found = {each.physical_offset: bytes(each.body) for each in store.scan(on_damage=passed)}
    return [offset for offset, body in put.items() if found.get(offset) != body]


def passed(_damage: Any) -> None:
    """What is missing is noticed anyway."""


def opener_of(writer: str, flush: str) -> Opener:
    """A put waits as long as the disk of a busy machine needs; a refused one would show nothing."""
    settings = {"os_page_cache_busy_timeout_ms": 60_000}
    return Opener.of(CrashPlan(writer=writer, flush=flush, settings=settings))


@pytest.mark.disk
@pytest.mark.sample(4)
@pytest.mark.parametrize(("writer", "flush"), PAIRS)
def test_a_clean_close_loses_nothing(writer: str, flush: str, tmp_path: Path) -> None:
    assert lost(tmp_path / "store", opener_of(writer, flush), seed=1) == []


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("writer", "flush"), PAIRS)
def test_no_clean_close_of_many_loses_anything(writer: str, flush: str, tmp_path: Path) -> None:
    opener = opener_of(writer, flush)
    for seed in range(MANY):
        assert lost(tmp_path / f"{seed}", opener, seed) == []


@pytest.mark.soak  # a minute or more; the simulator finds it in each run
@pytest.mark.timeout(7200)
def test_a_sealed_segment_that_was_not_committed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By messages that are lost, or by a commit to a file that is closed; in one of six runs."""
    sealed_segment_not_committed(monkeypatch)
    opener = opener_of("staged", "group-commit")
    assert any(breaks(tmp_path / f"{seed}", opener, seed) for seed in range(MANY))


def breaks(path: Path, opener: Opener, seed: int) -> bool:
    try:
        return bool(lost(path, opener, seed))
    except StoreFailed:
        return True
