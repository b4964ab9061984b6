"""``consumequeue_ext`` and ``batchconsumequeue``, against files that the real store wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lakelog.codec import decode_run
from lakelog.files.filesystem import RealFileSystem
from lakelog_queues.files.batchfiles import BatchQueueFiles
from lakelog_queues.files.ext import ExtFiles
from lakelog_queues.units.batchunits import inner_batches
from tests.support.fixtures import StoreFixture, StoreFixtures
from tests.support.rows import Row

FILES = RealFileSystem()
CQ_UNIT = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])


def folders(root: Path) -> list[Path]:
    return sorted({file.parent for file in root.rglob("*") if file.is_file()})


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def messages(fixture: StoreFixture, topic: str, queue_id: int) -> list[Row]:
    rows = [
        row
        for row in fixture.expected["msg"]
        if (row["cqTopic"], row["cqQueueId"]) == (topic, queue_id)
    ]
    return sorted(rows, key=lambda row: int(row["cqOffset"]))


def addresses_of(queue: Path, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    raw = b"".join(file.read_bytes() for file in sorted(queue.iterdir()))
    return np.frombuffer(raw, CQ_UNIT, count)["tags_code"].astype(np.int64)


def test_ext_units_are_read_and_written_as_the_real_store_does(
    store_fixtures: StoreFixtures, tmp_path: Path
) -> None:
    fixture = store_fixtures.get("cqext")
    root = fixture.store / "consumequeue_ext"
    assert folders(root)
    size = int(fixture.options["mappedFileSizeConsumeQueueExt"])
    for folder in folders(root):
        name = folder.relative_to(root)
        rows = messages(fixture, name.parts[0], int(name.parts[1]))
        addresses = addresses_of(fixture.store / "consumequeue" / name, len(rows))
        reader = ExtFiles(FILES, folder, size, read_only=True)
        assert reader.is_address(addresses).all()
        codes, times = reader.resolve(addresses)
        assert codes.tolist() == [row["tagsCode"] for row in rows]
        assert times.tolist() == [row["storeTimestamp"] for row in rows]
        writer = ExtFiles(FILES, tmp_path / name, size)
        assert writer.append(codes, times).tolist() == addresses.tolist()
        assert writer.end == reader.end
        assert contents(tmp_path / name) == contents(folder)
        writer.close()
        reader.close()


def test_units_of_batches_are_read_and_written_as_the_real_store_does(
    store_fixtures: StoreFixtures, tmp_path: Path
) -> None:
    fixture = store_fixtures.get("batchcq")
    root = fixture.store / "batchconsumequeue"
    size = int(fixture.options["mapperFileSizeBatchConsumeQueue"])
    log = (fixture.store / "commitlog" / f"{0:020d}").read_bytes()
    batch = decode_run(log, 0)
    topics = np.array(batch.topics)
    found = {(row["topic"], row["queueId"]): row for row in fixture.expected["queue"]}
    assert folders(root)
    for folder in folders(root):
        topic, queue_id = folder.parent.name, int(folder.name)
        rows, row = messages(fixture, topic, queue_id), found[topic, queue_id]
        reader = BatchQueueFiles(FILES, folder, size, read_only=True)
        units = reader.read(0, 1 << 20)
        assert units.queue_offsets.tolist() == [each["cqOffset"] for each in rows]
        assert units.offsets.tolist() == [each["cqPos"] for each in rows]
        assert units.sizes.tolist() == [each["cqSize"] for each in rows]
        assert units.tags_codes.tolist() == [each["tagsCode"] for each in rows]
        assert units.counts.tolist() == [each["batchNum"] for each in rows]
        assert reader.bounds(0) == (row["minOffset"], row["maxOffset"])
        assert reader.last_physical == row["maxPhysicOffset"]
        writer = BatchQueueFiles(FILES, tmp_path / topic / folder.name, size)
        mine = np.flatnonzero((topics == topic) & (batch.queue_ids == queue_id))
        for part in np.array_split(mine, 7):
            # A part of a batch as the dispatcher has it; RecordBatch takes any run of starts.
            some = type(batch)(batch.buffer, batch.base_offset, batch.starts[part])
            writer.append(*inner_batches(some))
        assert contents(tmp_path / topic / folder.name) == contents(folder)
        writer.close()
        reader.close()
