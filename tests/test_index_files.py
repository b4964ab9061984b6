"""The index built from the logs of real stores is the one that RocketMQ built from them.

Nothing in an index file depends on the wall clock: times are the store times of records. Only the
files' names do, which are the times of their making, and they are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakelog.codec import RecordBatch
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.properties import UNIQUE_KEY
from lakelog.format.sysflag import Transaction, transaction
from lakelog.interfaces import Context
from lakelog.log.reading.scan import scan
from lakelog.log.reading.sources import FileSource
from lakelog.settings.model import StoreSettings
from lakelog_hash_index import verify
from lakelog_hash_index.plugin import make
from lakelog_hash_index.settings import HashIndexSettings
from lakelog_interfaces.checkpoint import CheckpointKeeper
from tests.support.fixtures import DAMAGED, EXACT
from tests.support.sampling import chance

if TYPE_CHECKING:
    from tests.support.fixtures import StoreFixture, StoreFixtures

FOREVER_MS = (1 << 63) - 1
MOST_FOUND = 64
BATCHES = [1, 7, 1 << 16]
SHARES = [0.0, 0.3, 0.6, 0.99]


def settings_of(fixture: StoreFixture) -> HashIndexSettings:
    options = fixture.options
    return HashIndexSettings(
        slots=int(options["maxHashSlotNum"]), entries=int(options["maxIndexNum"])
    )


def index_of(path: Path, fixture: StoreFixture, *, read_only: bool) -> Any:
    files = RealFileSystem()
    core = StoreSettings(segment_size_bytes=int(fixture.options["mappedFileSizeCommitLog"]))
    context = Context(path, core, files, CheckpointKeeper(files, path), read_only)
    return make(settings_of(fixture), context)


def batches(fixture: StoreFixture) -> list[RecordBatch]:
    size_bytes = int(fixture.options["mappedFileSizeCommitLog"])
    source = FileSource(RealFileSystem(), fixture.store / "commitlog", size_bytes)
    pieces = scan(source, source.starts()[0])
    return [piece for piece in pieces if isinstance(piece, RecordBatch)]


def dispatch(index: Any, runs: list[RecordBatch], start: int, most: int = 1 << 16) -> None:
    for run in runs:
        known = int((run.base_offset + run.starts).searchsorted(start))
        for at in range(known, len(run), most):
            index.dispatch(run[at : at + most])


def check_queries(index: Any, fixture: StoreFixture) -> None:
    for row in fixture.expected["query"]:
        found = list(index.offsets(row["topic"], row["key"], 0, FOREVER_MS))[:MOST_FOUND]
        assert sorted(found) == row["physOffsets"], row


def unique_keys(runs: list[RecordBatch]) -> Iterator[tuple[int, str, str]]:
    """Offset, topic and unique key of every record that must be found by it."""
    for run in runs:
        columns = run.physical_offsets.tolist(), run.topics, run.properties, run.sys_flags.tolist()
        for offset, topic, properties, sys_flag in zip(*columns, strict=True):
            if UNIQUE_KEY in properties and transaction(sys_flag) is not Transaction.ROLLBACK:
                yield offset, topic, properties[UNIQUE_KEY]


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.iterdir())]


@pytest.fixture(params=EXACT)
def fixture(request: pytest.FixtureRequest, store_fixtures: StoreFixtures) -> StoreFixture:
    return store_fixtures.get(request.param)


def test_files_are_equal_byte_for_byte(fixture: StoreFixture, tmp_path: Path) -> None:
    check_files(fixture, tmp_path, chance().choice(BATCHES))


@pytest.mark.slow
@pytest.mark.parametrize("most", BATCHES)
def test_files_are_equal_whatever_comes_at_once(
    fixture: StoreFixture, tmp_path: Path, most: int
) -> None:
    check_files(fixture, tmp_path, most)


def check_files(fixture: StoreFixture, tmp_path: Path, most: int) -> None:
    """:param most: how many records are dispatched at once"""
    index = index_of(tmp_path, fixture, read_only=False)
    runs = batches(fixture)
    assert index.resume(0, runs[-1].end_offset) == 0
    dispatch(index, runs, 0, most)
    check_queries(index, fixture)
    index.close()
    ours, theirs = contents(tmp_path / "index"), contents(fixture.store / "index")
    assert [len(each) for each in ours] == [len(each) for each in theirs]
    assert ours == theirs
    settings = settings_of(fixture)
    assert verify(tmp_path / "index", settings.slots, settings.entries) == []


def test_the_real_files_answer(fixture: StoreFixture) -> None:
    """A reader of them, with what their end says must be dispatched."""
    index = index_of(fixture.store, fixture, read_only=True)
    runs = batches(fixture)
    start = index.resume(runs[0].base_offset, runs[-1].end_offset)
    check_queries(index, fixture)
    dispatch(index, runs, start)
    check_queries(index, fixture)
    index.close()


def test_an_owner_goes_on_where_rocketmq_stopped(
    fixture: StoreFixture, store_fixtures: StoreFixtures, tmp_path: Path
) -> None:
    copy = store_fixtures.copy(fixture.name, tmp_path)
    before = contents(copy.store / "index")
    index = index_of(copy.store, copy, read_only=False)
    runs = batches(copy)
    dispatch(index, runs, index.resume(runs[0].base_offset, runs[-1].end_offset))
    check_queries(index, copy)
    index.close()
    assert contents(copy.store / "index") == before


def test_a_cut_and_the_rest_again_give_the_same_files(
    fixture: StoreFixture, store_fixtures: StoreFixtures, tmp_path: Path
) -> None:
    check_a_cut(fixture, store_fixtures, tmp_path, chance().choice(SHARES))


@pytest.mark.slow
@pytest.mark.parametrize("share", SHARES)
def test_any_cut_and_the_rest_again_give_the_same_files(
    fixture: StoreFixture, store_fixtures: StoreFixtures, tmp_path: Path, share: float
) -> None:
    check_a_cut(fixture, store_fixtures, tmp_path, share)


def check_a_cut(
    fixture: StoreFixture, store_fixtures: StoreFixtures, tmp_path: Path, share: float
) -> None:
    """:param share: how much of the log stays"""
    copy = store_fixtures.copy(fixture.name, tmp_path)
    before = contents(copy.store / "index")
    runs = batches(copy)
    offsets = [int(each) for run in runs for each in run.base_offset + run.starts]
    end = offsets[int(share * len(offsets))]
    index = index_of(copy.store, copy, read_only=False)
    dispatch(index, runs, index.resume(runs[0].base_offset, end))
    index.close()
    assert contents(copy.store / "index") == before


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", DAMAGED)
def test_a_reader_finds_no_less_than_rocketmq_after_a_crash(
    store_fixtures: StoreFixtures, name: str
) -> None:
    """What RocketMQ's restart lost for good, too: every key of every whole record is found."""
    fixture = store_fixtures.get(name)
    index = index_of(fixture.store, fixture, read_only=True)
    runs = batches(fixture)
    dispatch(index, runs, index.resume(runs[0].base_offset, runs[-1].end_offset))
    for row in fixture.expected["query"]:
        found = list(index.offsets(row["topic"], row["key"], 0, FOREVER_MS))
        assert set(row["physOffsets"]) <= set(found), row
    for offset, topic, key in unique_keys(runs):
        assert offset in index.offsets(topic, key, 0, FOREVER_MS)
    index.close()
