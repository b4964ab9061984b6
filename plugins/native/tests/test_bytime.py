"""Queue offsets by time, in every role: compiled code and plain Python find the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakelog
from lakelog import Message, Store
from lakelog.errors import StoreClosed
from lakelog.format.layout import AT_BORN_HOST
from lakelog_queues.finding.search import Boundary
from lakelog_testing.crash.opener import owned_by
from plugins.hash_index.tests.support import poke
from plugins.native.tests.support import ROLES, in_role

SEGMENT = 1 << 13
SETTINGS: dict[str, Any] = {
    "accelerator": "native",
    "flush": "none",
    "segment_size_bytes": SEGMENT,
}
PUTS = 60
BASE_MS = 1_700_000_000_000
BOUNDARIES: tuple[Boundary, Boundary] = ("lower", "upper")
TIMES = st.integers(BASE_MS, BASE_MS + 12)


def fill(store: Store) -> None:
    """Queue 0 has several files and segments; its hosts are short and long."""
    for at in range(PUTS):
        born, other = ("[::1]:5" if at % each else None for each in (3, 2))
        store.put(Message("t", bytes(300), born_host=born, store_host=other, queue_id=0))
        store.put(Message("t", b"", queue_id=1))
    assert store.wait_dispatched()


@pytest.fixture(scope="module", params=[*((each, 14) for each in ROLES), ("owner", 1000)], ids=str)
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    path = tmp_path_factory.mktemp("native") / "s"
    role, entries = request.param
    more = {"consume-queue": {"file_entries": entries}}
    with in_role(role, path, fill, **SETTINGS, **more) as store:
        assert len(list((path / "commitlog").iterdir())) > 3
        store.offset_by_time("t", 0, BASE_MS)  # binds the search to the present accelerator
        yield store


def write(store: Store, offset: int, content: bytes) -> None:
    segment = sorted((store.path / "commitlog").iterdir())[offset // SEGMENT]
    poke(segment, offset % SEGMENT, content)


def check(store: Store, *asked: Any) -> int:
    native = store.offset_by_time(*asked)
    assert native == store._find.times.offset_by_time(*asked)
    return native


def rewritten(store: Store, times: list[int]) -> list[int]:
    """Write other store times into the records of queue 0; return their offsets."""
    units = store.queue_units("t", 0, 0, PUTS)
    offsets = [int(each) for each in units.offsets]
    for at, (offset, ms) in enumerate(zip(offsets, times, strict=True)):
        write(store, offset + AT_BORN_HOST + (20 if at % 3 else 8), ms.to_bytes(8, "big"))
    return offsets


@given(times=st.lists(TIMES, min_size=PUTS, max_size=PUTS), rising=st.booleans(), wanted=TIMES)
@settings(max_examples=30)
def test_any_times(store: Store, times: list[int], rising: bool, wanted: int) -> None:
    times = sorted(times) if rising else times
    rewritten(store, times)
    for boundary in BOUNDARIES:
        found = check(store, "t", 0, wanted, boundary)
        assert store._find.lookups.offset_by_time("t", 0, wanted, boundary) == found
        if rising and boundary == "lower":
            assert found == sum(each < wanted for each in times)


@pytest.mark.sample(3)
@given(st.data())
@settings(max_examples=25)
def test_any_damage(store: Store, data: st.DataObject) -> None:
    offsets = rewritten(store, sorted(data.draw(st.lists(TIMES, min_size=PUTS, max_size=PUTS))))
    files = sorted((store.path / "commitlog").iterdir())
    before = [each.read_bytes() for each in files]
    try:
        for _ in range(data.draw(st.integers(1, 30))):
            at = data.draw(st.sampled_from(offsets)) + data.draw(st.integers(0, 80))
            write(store, min(at, SEGMENT * len(files) - 1), bytes([data.draw(st.integers(0, 255))]))
        for boundary in BOUNDARIES:
            check(store, "t", 0, data.draw(TIMES), boundary)
    finally:
        for each, content in zip(files, before, strict=True):
            poke(each, 0, content)


class Number(int):
    """A number that is no plain ``int``."""


UNUSUAL: list[tuple[Any, ...]] = [
    *[(each, 0, BASE_MS, "lower") for each in ("", "none", None, 7)],
    *[("t", each, BASE_MS, "lower") for each in (9, -1, True, None, 2**40, Number(0))],
    *[("t", 0, each, "lower") for each in (-1, True, None, 10**9, 10**14, 2**63, Number(5))],
    *[("t", 0, BASE_MS, each) for each in ("middle", "", None, 1)],
]


def test_what_is_unusual_is_left_to_python(store: Store) -> None:
    for asked in UNUSUAL:
        assert store._find.lookups.offset_by_time(*asked) is None
        outcomes: list[int | str] = []
        for each in (store, store._find.times):
            try:
                outcomes.append(each.offset_by_time(*asked))
            except (TypeError, ValueError) as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1], asked


def test_segments_that_were_deleted(tmp_path: Path) -> None:
    store = lakelog.open(tmp_path / "s", **SETTINGS)
    fill(store)
    store.flush()
    wanted = store.earliest_time("t", 0) or 0
    segments, positions = owned_by(store).log.segments, owned_by(store).positions
    firsts = []
    for _ in range(3):
        firsts.append(check(store, "t", 0, wanted, "lower"))
        assert store._find.lookups.offset_by_time("t", 0, 0, "upper") == firsts[-1]
        positions.minimum = segments.exclude_first()
    assert firsts == sorted(set(firsts))
    store.close()
    with pytest.raises(StoreClosed):
        store.offset_by_time("t", 0, wanted)
