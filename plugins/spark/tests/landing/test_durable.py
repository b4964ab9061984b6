"""How often a log is asked up to where it is durable, which may mean reading a whole segment."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakelog
from lakelog_spark.landing.durable import DurableEnd
from plugins.spark.tests.stores import open_small


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
    inner = vars(lakelog.Store)["flushed_offset"]

    def counted(store: lakelog.Store) -> int:
        answers.append(inner.fget(store))
        return answers[-1]

    monkeypatch.setattr(lakelog.Store, "flushed_offset", property(counted))
    return answers


def ends(path: Path, durable: DurableEnd, *starts: int) -> list[int | None]:
    """As passes ask, each of which opens the store."""
    found = []
    for start in starts:
        with lakelog.open(path, mode="read") as store:
            found.append(durable.behind(store, start))
    return found


def test_a_closed_log_is_asked_once_until_all_has_landed(store: Path, asked: list[int]) -> None:
    durable = DurableEnd()
    (end,) = ends(store, durable, 0)
    assert end
    assert ends(store, durable, 1, end - 1) == [end, end]
    assert asked == [end]
    ends(store, durable, end)
    assert asked == [end, end]


def test_a_log_that_grew_is_asked_again(store: Path) -> None:
    durable = DurableEnd()
    (before,) = ends(store, durable, 0)
    with open_small(store) as opened:
        opened.put(lakelog.Message("t", b"more"))
    (behind,) = ends(store, durable, 0)
    assert before is not None
    assert behind is not None
    assert behind > before
