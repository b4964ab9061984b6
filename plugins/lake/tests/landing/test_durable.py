"""How often a log is asked up to where it is durable, and which store a pass reads."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import pytest

import lakelog
from lakelog import Message
from lakelog.format.layout import OWN_DIR, SETTINGS_FILE
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.log.extent import CachedStore, DurableEnd
from lakelog_lake.tasks.task import LandingSource
from lakelog_queues.readers import ReaderWait
from plugins.lake.tests.landing.table_specs import all_passes, dispatcher
from plugins.lake.tests.stores import open_small


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_small(tmp_path / "store") as opened:
        for number in range(10):
            opened.put(lakelog.Message("t", b"%d" % number))
    return tmp_path / "store"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Each answer of a store."""
    answers: list[int] = []
    inner = inspect.getattr_static(lakelog.Store, "flushed_offset")

    def counted(store: lakelog.Store) -> int:
        answers.append(inner.fget(store))
        return answers[-1]

    monkeypatch.setattr(lakelog.Store, "flushed_offset", property(counted))
    return answers


def ends(path: Path, durable: DurableEnd, *starts: int) -> list[int]:
    """As passes ask, each of which opens the store."""
    found = []
    for start in starts:
        with lakelog.open(path, mode="read") as store:
            end = durable.behind(store, start)
            assert end is not None
            found.append(end)
    return found


def test_a_store_that_stays_closed_is_asked_once_also_when_all_has_landed(
    store: Path, asked: list[int]
) -> None:
    _age(store, 60)
    durable = DurableEnd()
    (end,) = ends(store, durable, 0)
    assert ends(store, durable, end, end) == [end, end]
    assert asked == [end]


def test_a_store_that_was_opened_meanwhile_is_asked_again(store: Path, asked: list[int]) -> None:
    """Also where no time of a segment tells that somebody wrote to it through a mapping."""
    _age(store, 60)
    durable, segments = DurableEnd(), sorted((store / "commitlog").iterdir())
    (end,) = ends(store, durable, 0)
    times = [(each, each.stat().st_mtime_ns) for each in segments]
    with open_small(store) as opened:
        opened.put(lakelog.Message("t", b"more"))
    for each, time_ns in times:
        os.utime(each, ns=(time_ns, time_ns))
    (behind,) = ends(store, durable, end)
    assert behind > end


def test_a_store_that_was_closed_just_now_is_asked_again(store: Path, asked: list[int]) -> None:
    _age(store, -60)
    durable = DurableEnd()
    (end,) = ends(store, durable, 0)
    ends(store, durable, end)
    assert asked == [end, end]


def _age(store: Path, seconds: int) -> None:
    """As if it was closed so long ago; less than none keeps it fresh on a slow machine."""
    for each in (store, store / "commitlog"):
        then = each.stat().st_mtime_ns - seconds * 1_000_000_000
        os.utime(each, ns=(then, then))


def test_passes_build_no_queues_in_memory(store: Path, tmp_path: Path) -> None:
    """They would grow with each message, for as long as the store stays open."""
    lander = dispatcher(LandingSource(store, "S"), TableSpec(f"parquet:{tmp_path / 't'}"))
    with open_small(store, flush="group-commit") as owner:
        owner.put(Message("t", b"second"))
        all_passes(lander)
        opened = lander._kept.kept
        assert opened is not None
        waits = opened._current.last().waits
        assert isinstance(waits, ReaderWait)
        assert waits.completion.offset == 0
        assert waits.offset > 0  # it is asking that builds them
        lander.close()


def test_it_stays_open_beside_one_owner_and_sees_what_comes(store: Path) -> None:
    """It is opened anew where the owner, the settings or known damage are others."""
    kept = CachedStore(store)
    with open_small(store, flush="group-commit") as owner:
        opened, before = kept.now(), kept.now().flushed_offset
        owner.put(Message("t", b"more"))
        assert kept.now() is opened
        assert kept.now().flushed_offset > before
        for name in ("damage.json", SETTINGS_FILE):
            former = kept.now()
            (store / OWN_DIR / name).write_text("")
            assert kept.now() is not former
        last = kept.now()
    assert kept.now() is not kept.now()
    with open_small(store):
        assert kept.now() is not last
        last = kept.now()
        kept.close()
        with pytest.raises(lakelog.errors.StoreClosed):
            list(last.scan())
    kept.close()
