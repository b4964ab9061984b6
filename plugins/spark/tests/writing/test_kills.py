"""A driver is killed at any call to the file system while it hands rows over."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from lakelog.message import Message
from lakelog_spark.writing.staging import folder_of
from lakelog_testing.samples import copy_store
from plugins.spark.tests.writing.jobs import (
    JOB,
    SIZES,
    counts,
    expected,
    hand_over,
    in_order,
    is_killed,
    open_to_append,
    rows_of,
    stage_all,
)

OTHER = ("other", b"somebody else's")


def killed(tmp_path: Path, number: int) -> tuple[Path, bool]:
    """A store whose handover died there."""
    path = tmp_path / f"store-{number}"
    open_to_append(path).close()
    return path, is_killed(path, stage_all(path), number)


def somebody_appends(path: Path) -> None:
    with open_to_append(path) as store:
        store.put_batch([Message(*OTHER)] * 3)


def finish(path: Path) -> None:
    """Come back: as the retry of a commit, which may have staged everything anew."""
    hand_over(path, stage_all(path))
    assert hand_over(path, None) == 0
    assert [each.name for each in folder_of(path, JOB).iterdir()] == ["journal.json"]


def check(tmp_path: Path, number: int) -> bool:
    """All that may come after a kill at one call; whether there was such a call."""
    path, died = killed(tmp_path, number)
    alone, followed, twice = (tmp_path / name for name in ("alone", "followed", "twice"))
    for copy in (alone, followed, twice):
        copy_store(path, copy)
    finish(alone)
    assert counts(alone) == expected()
    assert in_order(alone) == [b for p, n in enumerate(SIZES) for b in bodies(p, n)]
    somebody_appends(followed)
    finish(followed)
    assert counts(followed) == expected() + Counter({OTHER: 3})
    hand_over(twice, stage_all(twice, "the same again"), "the same again")
    finish(twice)
    assert counts(twice) == expected(2)
    for each in (path, alone, followed, twice):
        shutil.rmtree(each)
    return died


def bodies(partition: int, count: int) -> list[bytes]:
    return [bytes(each.body) for each in rows_of(partition, count)]


@pytest.mark.parametrize("number", [8, 14, 22])
def test_a_kill_loses_and_doubles_nothing(tmp_path: Path, number: int) -> None:
    assert check(tmp_path, number)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kills_at_every_call(tmp_path: Path) -> None:
    number = 1
    while check(tmp_path, number):
        number += 1
    assert number > 60


@pytest.mark.slow
def test_killed_again_and_again(tmp_path: Path) -> None:
    """Each life appends one batch, and tears another."""
    path = tmp_path / "store"
    open_to_append(path).close()
    parts = stage_all(path)
    lives = 1
    while is_killed(path, parts, 11):
        lives += 1
    assert lives > 5
    assert counts(path) == expected()


def test_some_kill_leaves_a_part_of_a_batch(tmp_path: Path) -> None:
    """The tests above would show nothing if none did."""
    left = []
    for number in (13, 14, 15):
        path, _ = killed(tmp_path, number)
        with open_to_append(path):
            left.append(sum(counts(path).values()))
    assert any(each % 7 > 0 for each in left), left
