"""A sync fails in one process of two, which dies right after: the other one acknowledges no more.

The kernel has told the error to the dead process alone, and takes the pages for clean since: a sync
by the other one would succeed, and prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog.errors import PutRefused, StoreFailed
from lakelog.files.filesystem import RealFileSystem
from lakelog.processes.shared_page import FLUSHED, SharedPage
from tests.faults.conftest import Workers
from tests.faults.workload import BESIDE, GO, OPEN
from tests.replication.repeating import Repeating
from tests.support.waiting import until


@contextmanager
def beside(faulty: Workers, path: Path, flush: str, error: str) -> Iterator[Callable[[], None]]:
    """A process that has the store open; yields what lets its sync fail, of which it dies."""
    job: Final[dict[str, Any]] = {"call": "fdatasync", "below": "commitlog", "late": True}
    with ThreadPoolExecutor() as pool:
        working = pool.submit(
            faulty.run, path, {"flush": flush}, workload="beside", error=error, **job
        )
        until(path.with_name(OPEN).exists)

        def go_on() -> None:
            path.with_name(GO).touch()
            assert working.result().exit == -9

        yield go_on


@contextmanager
def putting(store: lakelog.Store) -> Iterator[Repeating[int]]:
    """Puts, the first of which is acknowledged; finds where those end that are."""

    def put(_number: int) -> int:
        result = store.put(lakelog.Message("t", b"here", queue_id=0))
        assert result.status is lakelog.PutStatus.PUT_OK
        return result.end_offset

    with Repeating(put) as found:
        found.more(1)
        yield found


def flushed(path: Path) -> int:
    return SharedPage.join(RealFileSystem(), path).words[FLUSHED]


def ends_there(path: Path, flush: str) -> set[int]:
    """Where messages end, as the next open finds them."""
    with lakelog.open(path, flush=flush, **BESIDE) as store:
        return {each.physical_offset + each.size for each in store.scan()}


@pytest.mark.parametrize(
    ("flush", "opened_first"), [("inline", "it"), ("group-commit", "the other")]
)
def test_a_sync_that_fails_fails_the_store_for_all(
    faulty: Workers, tmp_path: Path, flush: str, opened_first: str
) -> None:
    path = tmp_path / "store"
    first = lakelog.open(path, flush=flush, **BESIDE) if opened_first == "the other" else None
    with beside(faulty, path, flush, "EIO") as go_on:
        store = lakelog.open(path, flush=flush, **BESIDE) if first is None else first
        with putting(store) as mine:
            go_on()
            until(lambda: mine.error is not None, "the store has not failed")
        assert isinstance(mine.error, StoreFailed | PutRefused)  # by where it was just then
        with pytest.raises(PutRefused, match="the store failed"):
            store.put(lakelog.Message("t", b"again"))
        assert max(mine.found) <= flushed(path), "acknowledged, and nobody synced it"
        with pytest.raises(StoreFailed):
            store.close()
    assert (path / "abort").exists()
    assert set(mine.found) <= ends_there(path, flush)


@pytest.mark.parametrize("flush", ["inline", "group-commit"])
def test_a_death_in_a_sync_fails_nobody(faulty: Workers, tmp_path: Path, flush: str) -> None:
    """Whoever syncs next writes what it had marked once more."""
    path = tmp_path / "store"
    with (
        beside(faulty, path, flush, "KILL") as go_on,
        lakelog.open(path, flush=flush, **BESIDE) as store,
        putting(store) as mine,
    ):
        go_on()
        count = len(mine.found)
        until(lambda: len(mine.found) > count or mine.error is not None, "puts stand still")
        assert mine.error is None
        assert max(list(mine.found)) <= flushed(path)
    assert set(mine.found) <= ends_there(path, flush)
