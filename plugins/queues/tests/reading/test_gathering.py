"""Records at given places, in any order, some of them no records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.tests.store.support import SEGMENT, open_small, overwrite, read_small
from lakelog import Store
from lakelog.errors import LakelogError
from lakelog.message import StoredMessage
from lakelog_queues.finding.gather import BROKEN, GONE, WHOLE, Gathered
from lakelog_queues.finding.records import PlacedRecords
from plugins.queues.tests.reading.support import log_of_store, put_numbered


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same store, by its owner and by a reader; its messages; one of them is damaged."""
    path = tmp_path_factory.mktemp("gather") / "s"
    with open_small(path, record_crc=True) as owner:
        put_numbered(owner, 150)
        messages = list(owner.scan())
        bad = messages[40]
        overwrite(path, bad.physical_offset + 150, b"?")
        with read_small(path, segment_size_bytes=SEGMENT) as reader:
            yield owner, reader, messages


def gathered_at(store: Store, places: list[tuple[int, int]], **more: bool) -> Gathered:
    table = np.array(places, np.int64).reshape(-1, 2)
    records = PlacedRecords(log_of_store(store))
    return records.gather(table[:, 0], table[:, 1].astype(np.int32), **more)


def messages_of(gathered: Gathered) -> dict[int, StoredMessage]:
    return {
        int(row): batch.message(at)
        for batch, rows in zip(gathered.batches, gathered.rows, strict=True)
        for at, row in enumerate(rows)
    }


@given(data=st.data())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_like_one_look_up_at_a_time(stores: Any, data: st.DataObject) -> None:
    owner, reader, messages = stores
    whole = st.sampled_from([(each.physical_offset, each.size) for each in messages])
    odd = st.tuples(st.integers(-50, 4 * SEGMENT), st.integers(-1, 400))
    near = st.tuples(whole, st.integers(-1, 1), st.integers(-1, 1)).map(
        lambda each: (each[0][0] + each[1], each[0][1] + each[2])
    )
    places = data.draw(st.lists(st.one_of(whole, whole, near, odd), max_size=12))
    for store in (owner, reader):
        gathered = gathered_at(store, places)
        found = messages_of(gathered)
        for row, (offset, size) in enumerate(places):
            wanted = looked_up(owner, offset, size)
            assert found.get(row) == wanted
            assert gathered.states[row] == (BROKEN if wanted is None else WHOLE)
        for rows in gathered.rows:
            assert (np.diff(rows) > 0).all()


def looked_up(store: Store, offset: int, size: int) -> StoredMessage | None:
    try:
        message = store.look_up(offset)
    except (LakelogError, ValueError):
        return None
    return message if message.size == size else None


def test_the_damaged_one_is_broken_and_only_that(stores: Any) -> None:
    owner, reader, messages = stores
    places = [(each.physical_offset, each.size) for each in messages]
    for store in (owner, reader):
        states = gathered_at(store, places).states
        assert np.flatnonzero(states != WHOLE).tolist() == [40]
        assert states[40] == BROKEN
        assert (gathered_at(store, places, verify=False).states == WHOLE).all()


def test_files_are_read_into_one_batch(stores: Any) -> None:
    _, reader, messages = stores
    places = [(each.physical_offset, each.size) for each in messages[:40]]
    gathered = gathered_at(reader, places)
    assert len(gathered.batches) == 1
    assert gathered.batches[0].physical_offsets.tolist() == [offset for offset, _ in places]


def test_a_segment_that_went(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put_numbered(store, 150)
        messages = list(store.scan())
    places = [(each.physical_offset, each.size) for each in messages]
    (tmp_path / "s" / "commitlog" / f"{0:020d}").unlink()
    with read_small(tmp_path / "s", segment_size_bytes=SEGMENT) as reader:
        gathered = gathered_at(reader, places)
    gone = [offset < SEGMENT for offset, _ in places]
    assert (gathered.states == np.where(gone, GONE, WHOLE)).all()


def test_a_segment_cut_short(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put_numbered(store, 40)
        messages = list(store.scan())
    places = [(each.physical_offset, each.size) for each in messages]
    cut = places[30][0] + 10
    with (tmp_path / "s" / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.truncate(cut)
    with read_small(tmp_path / "s", segment_size_bytes=SEGMENT) as reader:
        states = gathered_at(reader, places).states
    assert (states == WHOLE).nonzero()[0].tolist() == list(range(30))
