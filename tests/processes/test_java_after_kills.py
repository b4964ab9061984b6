"""What killed processes leave: the real store opens it, and reads the same as lakelog."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.processes.group import Group, prepared, running
from tests.processes.test_killed import seed_of
from tests.processes.words import STORE
from tests.support.rows import by_kind, difference
from tests.support.twostores import JAVA, SEGMENT, compare, derived, ours, recovered

if TYPE_CHECKING:
    from tests.oracle.java import Oracle

ROUNDS: Final = 2
PRODUCERS: Final = 4


def _left(folder: Path, *, stop: bool, rounds: int) -> Path:
    """The store of a group some of which were killed; all of them at the end, or none."""
    prepared(folder, segment_bytes=SEGMENT, queue=100, slots=100, entries=400)
    choose = random.Random(seed_of(3))
    with running(Group.of(folder, PRODUCERS, heirs=1)) as group:
        for _ in range(rounds):
            group.round(choose)
        if stop:
            group.stop()
    return folder / STORE


def _check_closed(oracle: Oracle, path: Path) -> None:
    """The real store takes all of it as it is."""
    assert not (path / "abort").exists()
    found, before = ours(path), derived(path)
    assert by_kind(found)["rec"]
    assert difference(found, oracle.dump(path, JAVA, in_place=True)) == ""
    assert derived(path) == before


@pytest.mark.slow
def test_the_real_store_opens_what_was_stopped(oracle: Oracle, tmp_path: Path) -> None:
    _check_closed(oracle, _left(tmp_path / "g", stop=True, rounds=ROUNDS))


def test_the_real_store_opens_what_was_killed(oracle: Oracle, tmp_path: Path) -> None:
    path = _left(tmp_path / "g", stop=False, rounds=ROUNDS)
    assert (path / "abort").exists()
    copy = recovered(path)
    compare(path, ours(copy), oracle.dump(path, JAVA))
    _check_closed(oracle, copy)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_real_store_opens_what_was_killed_often(oracle: Oracle, tmp_path: Path) -> None:
    _check_closed(oracle, _left(tmp_path / "g", stop=True, rounds=20))
