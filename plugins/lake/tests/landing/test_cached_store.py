"""Which store a pass reads: one that stays open, or one that is opened anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lakelog
from lakelog import Message
from lakelog.format.layout import OWN_DIR, SETTINGS_FILE
from lakelog_lake.landing.dispatcher import LandingDispatcher, LandingSource
from lakelog_lake.landing.targets import TableSpec, targets_for
from lakelog_lake.log.cached_store import CachedStore
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.ranges import TaskLimits
from lakelog_queues.readers.catch_up import ReaderWait
from plugins.lake.tests.stores import open_small


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_small(tmp_path / "s") as store:
        store.put(Message("t", b"first"))
    return tmp_path / "s"


@pytest.fixture
def kept(path: Path) -> Iterator[CachedStore]:
    found = CachedStore(path)
    yield found
    found.close()


def test_it_stays_open_beside_one_owner_and_sees_what_comes(path: Path, kept: CachedStore) -> None:
    with open_small(path, flush="group-commit") as owner:
        store, before = kept.now(), kept.now().flushed_offset
        owner.put(Message("t", b"second"))
        assert kept.now() is store
        assert kept.now().flushed_offset > before
        assert [each.body for each in store.scan()] == [b"first", b"second"]


def test_passes_build_no_queues_in_memory(path: Path, tmp_path: Path) -> None:
    """They would grow with each message, for as long as the store stays open."""
    targets = targets_for(TableSpec(f"parquet:{tmp_path / 't'}"))
    lander = LandingDispatcher(LandingSource(path, "S"), targets, in_process, TaskLimits())
    with open_small(path, flush="group-commit") as owner:
        owner.put(Message("t", b"second"))
        while lander.one_pass() is not None:
            pass
        store = lander._kept.kept
        assert store is not None
        waits = store._current.last().waits
        assert isinstance(waits, ReaderWait)
        assert waits.completion.offset == 0
        assert waits.offset > 0  # it is asking that builds them
        lander.close()


def test_it_is_opened_anew_where_nobody_owns_the_store(kept: CachedStore) -> None:
    assert kept.now() is not kept.now()


def test_it_is_opened_anew_beside_another_owner(path: Path, kept: CachedStore) -> None:
    with open_small(path):
        store = kept.now()
    with open_small(path):
        assert kept.kept is None
        assert kept.now() is not store


@pytest.mark.parametrize("name", ["damage.json", SETTINGS_FILE])
def test_it_is_opened_anew_where_what_it_was_opened_by_is_another(
    path: Path, kept: CachedStore, name: str
) -> None:
    with open_small(path):
        store = kept.now()
        (path / OWN_DIR / name).write_text("")
        assert kept.kept is None
        assert kept.now() is not store


def test_what_was_let_go_is_closed(path: Path, kept: CachedStore) -> None:
    with open_small(path):
        store = kept.now()
        kept.close()
        with pytest.raises(lakelog.errors.StoreClosed):
            list(store.scan())
        assert kept.now() is not store
