"""The comparison runs with every installed store, and its page agrees with its record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bench.comparison import faults, page
from tests.bench.comparison.child import body_of, number_of
from tests.bench.comparison.running import Found, Putting, Tally
from tests.bench.comparison.stores import STORES, Store, by_name, damaged_stores
from tests.bench.model import CannotRunError, NothingPutError
from tests.support import required

pytestmark = pytest.mark.timeout(600)  # the first one builds the real store
SLOW = pytest.mark.slow
OWN = ("lakelog", "sqlite", "rocketmq")
SURE = ("missing", "doubled", "wrong", "disordered", "unopened")
"""Counts that must be 0 for every store after kills alone."""
lakelogs = pytest.mark.parametrize(
    "store", [STORES[0], pytest.param(STORES[1], marks=SLOW)], ids=lambda each: each.name
)


def here(store: Store) -> Store:
    """Return the store, or skip; stores without extra packages must be installed in CI."""
    reason = store.missing()
    if reason is not None and store.driver in OWN:
        required.missing(reason)
    if reason is not None:
        pytest.skip(reason)
    return store


def done(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of ``work``; skips if a file system or strace is missing."""
    try:
        return work()
    except NothingPutError:
        raise
    except CannotRunError as reason:
        pytest.skip(str(reason))


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "store",
    [
        pytest.param(each, id=each.name, marks=[SLOW] * (each.driver == "rocketmq"))
        for each in STORES
    ],
)
def test_a_store_that_is_killed_keeps_what_it_acknowledged(store: Store, tmp_path: Path) -> None:
    found = faults.kills(here(store), tmp_path, rounds=2)
    assert found["rounds"] == 2
    assert found["acknowledged"] > 0
    assert {each: found[each] for each in SURE} == dict.fromkeys(SURE, 0)


@pytest.mark.root
@lakelogs
def test_lakelog_keeps_what_it_acknowledged_before_a_cut(store: Store, tmp_path: Path) -> None:
    found = done(lambda: faults.cuts(here(store), tmp_path, rounds=2))
    assert (found["rounds"], found["missing"], found["wrong"]) == (2, 0, 0)


@pytest.mark.root
@lakelogs
def test_lakelog_never_goes_on_after_a_failed_sync(store: Store, tmp_path: Path) -> None:
    found = done(lambda: faults.sync_once(here(store), tmp_path / "scratch"))
    assert found["refused"] > 0
    assert (found["acknowledged_after_refusal"], found["missing"]) == (0, 0)


@pytest.mark.root
def test_what_fails_for_good_is_never_acknowledged(tmp_path: Path) -> None:
    found = done(lambda: faults.syncs_then_cut(here(STORES[0]), tmp_path / "scratch"))
    assert found["refused"] > 0
    assert found["missing"] == 0


@pytest.mark.root
def test_lakelog_goes_on_once_there_is_space_again(tmp_path: Path) -> None:
    found = done(lambda: faults.full_disk(here(STORES[0]), tmp_path / "scratch"))
    assert found["refused"] > 0
    assert found["acknowledged_after_space"] > 0
    assert (found["missing"], found["death"]) == (0, None)


def test_lakelog_tells_of_damage(tmp_path: Path) -> None:
    found = faults.damage(here(damaged_stores()[0]), tmp_path, flips=1)
    assert found["untouched"]["told"] == 0
    assert found["untouched"]["fewest_read"] == faults.MESSAGES
    for kind in ("flipped", "zeroed", "truncated"):
        assert (found[kind]["silent_losses"], found[kind]["wrong"]) == (0, 0)


def test_what_is_missing_wrong_and_doubled_is_counted() -> None:
    lines = ["open 0.5", "m 0 1", "m 0 4", "m 0 2", "m 1 3", "m 1 3", "bad 0", "error it is torn"]
    found, tally = Found(), Tally()
    assert not any(found.take(line) for line in lines)
    assert found.take("end")
    assert tally.add({1, 2, 5, 6}, 4, found) == {5, 6}
    told = tally.record()
    assert (told["missing"], told["lossy"], told["doubled"], told["wrong"]) == (2, 1, 1, 1)
    assert (told["disordered"], told["unanswered"], told["unopened"]) == (1, 2, 0)
    assert (told["open_ms"], told["told"]) == (500, ["it is torn"])


def test_any_other_byte_is_noticed() -> None:
    body = body_of(123)
    assert number_of(body) == 123
    for at in (0, 11, 12, len(body) - 1):
        assert number_of(body[:at] + b"\x07" + body[at + 1 :]) is None
    assert number_of(body[:-1]) is None


def test_a_process_that_ends_by_itself_is_told(tmp_path: Path) -> None:
    store = by_name("SQLite, FULL")
    (tmp_path / "messages.db").mkdir()
    with Putting.started(store, tmp_path) as putting:
        assert not putting.wait_outcomes(1)
        assert "unable to open database file" in (putting.death() or "")


def test_the_page_says_what_the_record_has_of_every_store() -> None:
    found, names = page.load(), {each.name for each in STORES}
    assert page.PAGE.read_text() == page.page(found), "write it again with --page"
    assert found["kills"]["stores"].keys() == found["cuts"]["stores"].keys() == names
