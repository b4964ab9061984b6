"""Look-ups in every role: compiled code has the results of plain Python, also of damaged files."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakelog
from lakelog import Message, Store
from lakelog.errors import StoreClosed
from lakelog_queues.finding.finder import LookupParts, readable
from lakelog_queues.finding.get import QueueGetter
from plugins.native.tests.support import NATIVE, ROLES, in_role
from plugins.native.tests.test_getting import (
    COUNT,
    COUNTS,
    ENTRIES,
    FEW,
    OFFSETS,
    SEGMENT,
    UNIT_BYTES,
    changed,
    outcome,
    put,
)

SETTINGS: dict[str, Any] = {
    "accelerator": "native",
    "flush": "none",
    "segment_size_bytes": SEGMENT,
    **FEW,
}
EACH_EXAMPLE = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20
)
BYTES = st.binary(min_size=1, max_size=30) | st.sampled_from([bytes(20), bytes(600), b"\xff" * 8])


@attrs.frozen
class Ways:
    """Both ways of one reader, and the offsets of the messages of a queue."""

    store: Store
    plain: QueueGetter
    offsets: list[int]

    def both(self, *given: Any) -> None:
        assert outcome(self.store._find.getter, *given) == outcome(self.plain, *given)


@pytest.fixture(scope="module", params=ROLES)
def ways(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ways]:
    path = tmp_path_factory.mktemp("readers") / "s"
    with in_role(request.param, path, lambda owner: put(owner, COUNT), **SETTINGS) as store:
        getter = store._find.getter
        plain = QueueGetter(getter._queues, store._reader, getter._minimum, ENTRIES)
        found = plain.get("t", 0, 0, COUNT).messages
        assert len(found) == COUNT // 2
        yield Ways(store, plain, [each.physical_offset for each in found])


def test_compiled_code_answers(ways: Ways) -> None:
    assert ways.store.get("t", 0, ENTRIES, 1).messages  # maps its files
    lookups = ways.store._find.lookups
    got = lookups.get("t", 0, ENTRIES + 5, 7)
    assert got is not None
    assert got == ways.plain.get("t", 0, ENTRIES + 5, 7)
    assert len(got.messages) == 7
    assert len(lookups.query("t", "k6", None, None, 64) or ()) == 1
    assert lookups.offset_by_time("t", 0, 0, "lower") == 0


def test_records_far_apart_in_a_segment(tmp_path: Path) -> None:
    large = {**SETTINGS, "segment_size_bytes": 16 << 20}
    with lakelog.open(tmp_path, **large) as owner:
        for number in range(60):
            owner.put(Message("t", b"%d" % number, queue_id=0))
            owner.put(Message("other", bytes(200_000 if number % 20 == 5 else 3_000), queue_id=0))
    with lakelog.open(tmp_path, mode="read", **large) as store:
        got = store._find.lookups.get("t", 0, 1, 50)
    with lakelog.open(tmp_path, mode="read", **{**large, "accelerator": "none"}) as store:
        assert got == store.get("t", 0, 1, 50)
        assert len(got.messages) == 50


@given(st.integers(0, COUNT // 2 - 1), st.integers(-10, 500), BYTES, OFFSETS, COUNTS)
@EACH_EXAMPLE
def test_the_same_of_damaged_records(
    ways: Ways, number: int, within: int, data: bytes, offset: int, count: int
) -> None:
    at = max(0, ways.offsets[number] + within)
    base = at - at % SEGMENT
    file = ways.store.path / "commitlog" / f"{base:020d}"
    ways.both("t", 0, offset, count)
    with changed(file, at - base, data[: SEGMENT - at % SEGMENT]):
        ways.both("t", 0, offset, count)
        ways.both("t", 0, number, 3)


@given(st.integers(0, ENTRIES - 1), st.integers(0, 19), BYTES, OFFSETS, COUNTS)
@EACH_EXAMPLE
def test_the_same_of_damaged_units(
    ways: Ways, number: int, within: int, data: bytes, offset: int, count: int
) -> None:
    at = number * UNIT_BYTES + within
    file = ways.store.path / "consumequeue" / "t" / "0" / f"{0:020d}"
    with changed(file, at, data[: ENTRIES * UNIT_BYTES - at]):
        ways.both("t", 0, offset, count)
        ways.both("t", 0, number, 3)


# --- files that others cut, remove or replace ---


def stopped(path: Path) -> Path:
    """A store that is closed."""
    with lakelog.open(path, **SETTINGS) as owner:
        put(owner, COUNT)
    return path


def answers(store: Store) -> list[Any]:
    """The results of all look-ups, or their errors."""
    calls: list[Any] = [
        lambda: [store.get("t", 0, at, 40) for at in (0, 50, 110)],
        lambda: [store.query("t", f"k{at}") for at in (0, 100, 298)],
        lambda: [store.offset_by_time("t", 0, at) for at in (0, 10**12)],
    ]
    found: list[Any] = []
    for call in calls:
        try:
            found.append(call())
        except lakelog.LakelogError as error:
            found.append(type(error))
    return found


@pytest.mark.sample(4)
@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/t/0"])
@pytest.mark.parametrize("change", ["cut", "empty", "gone", "link", "folder"])
def test_files_that_somebody_changed(tmp_path: Path, folder: str, change: str) -> None:
    path = stopped(tmp_path / "s")
    plainly = {**SETTINGS, "accelerator": "none"}
    with (
        lakelog.open(path, mode="read", **SETTINGS) as native,
        lakelog.open(path, mode="read", **plainly) as plain,
    ):
        assert answers(native) == answers(plain)
        first = min((path / folder).iterdir())
        if change in ("cut", "empty"):
            os.truncate(first, 777 if change == "cut" else 0)
        else:
            first.rename(tmp_path / "aside")
        if change == "link":
            first.symlink_to(tmp_path / "aside")
        elif change == "folder":
            first.mkdir()
        assert answers(native) == answers(plain)


def test_one_segment_at_most_is_held_between_calls_and_none_once_closed(tmp_path: Path) -> None:
    """The disk space of other segments must be freed when retention deletes them."""
    path = stopped(tmp_path / "s")
    with lakelog.open(path, mode="read", **SETTINGS) as store:
        assert all(answers(store))
        assert len(held(path / "commitlog")) <= 1
    assert not held(path / "commitlog")


def test_maps_of_units_go_with_their_files(tmp_path: Path) -> None:
    queues = tmp_path / "s" / "consumequeue"
    with lakelog.open(tmp_path / "s", **SETTINGS) as store:
        put(store, COUNT)
        assert answers(store) == answers(store)
        assert held(queues / "t")
        store.delete_topic("t")
        assert not held(queues / "t")
        store.put(Message("u", b"", queue_id=0))
        assert store.wait_dispatched()
        assert [store.get("u", 0, 0).next_offset for _ in range(3)] == [1, 1, 1]
        assert held(queues / "u")
    assert not held(queues)


def held(folder: Path) -> list[str]:
    """Files below ``folder`` that this process has open, or mapped."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text().splitlines()
    links = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(each.readlink()))
        except OSError:  # the descriptor of this listing
            continue
    paths = [each.split(maxsplit=5)[-1] for each in maps] + links
    return [each for each in paths if each.startswith(f"{folder}/")]


# --- how they end ---


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    for mode in ("read", "write"):
        path = stopped(tmp_path / mode)
        with lakelog.open(path, mode=mode, **SETTINGS) as store:
            assert store.query("t", "k1")
            assert store.query("t", "none") == []
        for call in (
            lambda: store.query("t", "none"),  # called here
            lambda: store.offset_by_time("t", 0, 0),
            lambda: store.get("t", 0, 0),
        ):
            with pytest.raises(StoreClosed):
                call()


class Callback:
    """Called to refresh; keeps its caller alive."""

    kept: Any = None

    def __call__(self, newest: bool) -> None:
        """Do nothing."""


def test_what_is_in_a_cycle_is_let_go(tmp_path: Path) -> None:
    """Compiled look-ups take part in garbage collection."""
    with lakelog.open(stopped(tmp_path / "s"), mode="read", **SETTINGS) as store:
        log = readable(store._reader)
        assert log is not None
        refresh = Callback()
        parts = LookupParts(
            log=log, plain=None, hash_files=None, buried=lambda _topic: 0, refresh=refresh
        )
        refresh.kept = NATIVE.lookups(parts)
        assert refresh.kept.get("t", 0, 0, 1) is None
        gone = weakref.ref(refresh)
        del refresh, parts
        gc.collect()
        assert gone() is None
