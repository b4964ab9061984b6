"""Queues built from the logs of real store directories are the real ones, byte for byte.

Nothing is excepted: every file of ``consumequeue/``, ``consumequeue_ext/`` and
``batchconsumequeue/`` of each fixture has its like here, and there are no others. (The log of
``rebuilt`` starts at 131072, so that its queues start with units that only fill their places; so
do ours.)
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelog.codec import RecordBatch
from lakelog.files.filesystem import RealFileSystem
from lakelog.log.reading.scan import scan
from lakelog.log.reading.sources import FileSource
from lakelog_interfaces.checkpoint import CheckpointKeeper
from lakelog_queues.dispatching.consumequeues import ConsumeQueues
from lakelog_queues.settings import ConsumeQueueSettings
from tests.support.fixtures import EXACT, StoreFixture, StoreFixtures

FILES = RealFileSystem()
BEHIND_EVERYTHING = 1 << 60


def settings_of(fixture: StoreFixture) -> ConsumeQueueSettings:
    options = fixture.options
    default = ConsumeQueueSettings()
    bytes_of_a_file = int(options.get("mappedFileSizeConsumeQueue", default.file_entries * 20))
    return ConsumeQueueSettings(
        file_entries=-(-bytes_of_a_file // 20),
        ext_enabled=options.get("enableConsumeQueueExt") == "true",
        ext_file_size_bytes=int(
            options.get("mappedFileSizeConsumeQueueExt", default.ext_file_size_bytes)
        ),
        batch_file_size_bytes=int(
            options.get("mapperFileSizeBatchConsumeQueue", default.batch_file_size_bytes)
        ),
    )


def queues(
    fixture: StoreFixture, path: Path, *, clean: bool = True, read_only: bool = False
) -> ConsumeQueues:
    return ConsumeQueues(
        FILES,
        path,
        settings_of(fixture),
        CheckpointKeeper(FILES, path),
        clean=clean,
        read_only=read_only,
        light_queues=fixture.options.get("enableLmq") == "true",
    )


def batches(fixture: StoreFixture) -> Iterator[RecordBatch]:
    size = int(fixture.options["mappedFileSizeCommitLog"])
    source = FileSource(FILES, fixture.store / "commitlog", size)
    for piece in scan(source, source.starts()[0]):
        if isinstance(piece, RecordBatch):
            yield piece


def build(fixture: StoreFixture, path: Path, step: int) -> None:
    if (fixture.store / "config").exists():
        shutil.copytree(fixture.store / "config", path / "config")
    built = queues(fixture, path)
    built.resume(0, 0)
    for batch in batches(fixture):
        for at in range(0, len(batch), step):
            built.dispatch(batch[at : at + step])
    built.close()


def files_of(store: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(store)): path.read_bytes()
        for name in ConsumeQueues.directories
        for path in (store / name).rglob("*")
        if path.is_file()
    }


def contents(reader: ConsumeQueues) -> dict[object, object]:
    return {
        queue: (bounds, [getattr(units, name).tolist() for name in ("offsets", "sizes")])
        for queue in reader.queues()
        if (bounds := reader.bounds(queue, 0)) is not None
        for units in [reader.units(queue, bounds[0], 1 << 20)]
    }


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("step", [1 << 20, 7])
def test_files_are_those_of_the_real_store(
    store_fixtures: StoreFixtures, tmp_path: Path, name: str, step: int
) -> None:
    fixture = store_fixtures.get(name)
    build(fixture, tmp_path, step)
    real, ours = files_of(fixture.store), files_of(tmp_path)
    assert sorted(ours) == sorted(real)
    assert [path for path, content in real.items() if ours[path] != content] == []


@pytest.mark.parametrize("name", EXACT)
def test_the_whole_log_may_come_again(
    store_fixtures: StoreFixtures, tmp_path: Path, name: str
) -> None:
    fixture = store_fixtures.copy(name, tmp_path)
    before = files_of(fixture.store)
    again = queues(fixture, fixture.store, clean=False)
    starts = [int(batch.physical_offsets[0]) for batch in batches(fixture)][:1]
    assert again.resume(starts[0], BEHIND_EVERYTHING) == starts[0]
    for batch in batches(fixture):
        again.dispatch(batch)
    again.close()
    assert files_of(fixture.store) == before


@pytest.mark.parametrize("name", EXACT)
def test_of_a_store_that_only_rocketmq_wrote_nothing_is_believed(
    store_fixtures: StoreFixtures, tmp_path: Path, name: str
) -> None:
    """A folder of a queue may have been removed, and nothing would tell of it."""
    fixture = store_fixtures.copy(name, tmp_path)
    before = files_of(fixture.store)
    opened = queues(fixture, fixture.store)
    assert opened.resume(0, BEHIND_EVERYTHING) == 0
    opened.close()
    assert files_of(fixture.store) == before


@pytest.mark.parametrize("name", EXACT)
def test_a_reader_keeps_in_memory_what_files_lack(
    store_fixtures: StoreFixtures, tmp_path: Path, name: str
) -> None:
    fixture = store_fixtures.get(name)
    whole = queues(fixture, fixture.store, read_only=True)
    whole.resume(0, BEHIND_EVERYTHING)
    if (fixture.store / "config").exists():
        shutil.copytree(fixture.store / "config", tmp_path / "config")
    reader = queues(fixture, tmp_path, read_only=True)
    first = next(int(batch.physical_offsets[0]) for batch in batches(fixture))
    assert reader.resume(first, BEHIND_EVERYTHING) == first
    for batch in batches(fixture):
        reader.dispatch(batch)
    assert contents(reader) == contents(whole)
    assert {path.name for path in tmp_path.iterdir()} <= {"config"}


@pytest.mark.parametrize("name", EXACT)
def test_bounds_are_those_of_the_real_store(store_fixtures: StoreFixtures, name: str) -> None:
    fixture = store_fixtures.get(name)
    reader = queues(fixture, fixture.store, read_only=True)
    reader.resume(0, BEHIND_EVERYTHING)
    size = int(fixture.options["mappedFileSizeCommitLog"])
    minimum = FileSource(FILES, fixture.store / "commitlog", size).starts()[0]
    rows = fixture.expected["queue"]
    assert rows
    found = {queue: reader.bounds(queue, minimum) for queue in reader.queues()}
    expected = {
        (row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"]) for row in rows
    }
    assert found == expected
    kinds = {queue: reader.kind(queue) for queue in reader.queues()}
    assert kinds == {(row["topic"], row["queueId"]): row["cqType"] for row in rows}
