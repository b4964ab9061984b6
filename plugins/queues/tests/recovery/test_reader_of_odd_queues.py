"""A reader ignores queue files that cannot be right, and changes none of them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from core.tests.recovery.support import crash
from core.tests.store.support import fill, open_small, read_small, tree
from lakelog import Message, PutResult, Store
from lakelog.errors import CorruptQueue
from lakelog_queues.plugin import ConsumeQueueSettings
from plugins.queues.tests.consumequeue.support import batch_of, contents, queues

ENTRIES, UNIT_BYTES = 20, 20
FILE_BYTES = ENTRIES * UNIT_BYTES
COUNT = 70
SMALL = {"file_entries": ENTRIES}


@pytest.fixture
def made(tmp_path: Path) -> list[PutResult]:
    with open_small(tmp_path, consume_queue=SMALL) as store:
        results = fill(store, COUNT)
        for number in range(5):
            store.put(Message("other", b"%d" % number, queue_id=1))
    return results


def read(path: Path) -> Store:
    return read_small(path, consume_queue=SMALL)


def file_of(path: Path, number: int) -> Path:
    return path / "consumequeue" / "t" / "0" / f"{number * FILE_BYTES:020d}"


@pytest.mark.parametrize("left", ["clean", "abort"])
@pytest.mark.parametrize(("length", "number"), [(1, 0), (FILE_BYTES - 20, 3), (FILE_BYTES + 20, 0)])
def test_all_is_found_and_nothing_is_changed(
    tmp_path: Path,
    made: list[PutResult],
    caplog: pytest.LogCaptureFixture,
    left: str,
    length: int,
    number: int,
) -> None:
    if left == "abort":
        crash(tmp_path)
    odd = file_of(tmp_path, number)
    odd.write_bytes(odd.read_bytes().ljust(length, b"\x01")[:length])
    before = tree(tmp_path)
    with caplog.at_level(logging.WARNING, "lakelog"), read(tmp_path) as store:
        assert store.queue_bounds("t", 0) == (0, COUNT)
        units = store.queue_units("t", 0, 0, 1000)
        assert units.offsets.tolist() == [each.physical_offset for each in made]
        found = store.get("t", 0, 0, COUNT).messages
        assert [each.physical_offset for each in found] == [each.physical_offset for each in made]
        assert len(store.get("other", 1, 0).messages) == 5
        assert store.queue_bounds("other", 1) == (0, 5)
    assert tree(tmp_path) == before
    assert f"{odd} has a wrong length ({length} bytes)" in caplog.text


def test_it_follows_an_owner_that_comes_later(tmp_path: Path, made: list[PutResult]) -> None:
    """The owner moves the file away and builds another; the reader goes on using the log."""
    odd = file_of(tmp_path, 3)
    odd.write_bytes(odd.read_bytes()[:-20])
    with read(tmp_path) as reader:
        assert reader.queue_bounds("t", 0) == (0, COUNT)
        with open_small(tmp_path, consume_queue=SMALL) as owner:
            new = owner.put(Message("t", b"new", queue_id=0))
        assert reader.wait_dispatched()
        assert reader.queue_bounds("t", 0) == (0, COUNT + 1)
        assert reader.get("t", 0, COUNT).messages[0].physical_offset == new.physical_offset
        assert reader.get("t", 0, 0, COUNT).messages[-1].queue_offset == made[-1].queue_offset


def test_a_file_at_a_place_that_none_can_have(tmp_path: Path, made: list[PutResult]) -> None:
    file_of(tmp_path, 2).rename(file_of(tmp_path, 2).with_name(f"{2 * FILE_BYTES + 20:020d}"))
    with read(tmp_path) as store:
        found = store.get("t", 0, 0, COUNT).messages
    assert [each.physical_offset for each in found] == [each.physical_offset for each in made]


@pytest.mark.usefixtures("made")
def test_other_settings_stay_an_error(tmp_path: Path) -> None:
    with (
        read_small(tmp_path, consume_queue={"file_entries": 7}) as store,
        pytest.raises(CorruptQueue, match="restore the value they were made with"),
    ):
        store.get("t", 0, 0)


def test_codes_that_are_kept_apart(tmp_path: Path) -> None:
    """One extension file is too short: its queue is built from the log, with its tags codes."""
    ext = {**SMALL, "ext_enabled": True, "ext_file_size_bytes": 500}
    with open_small(tmp_path, consume_queue=ext) as store:
        for number in range(COUNT):
            store.put(Message("t", b".", tags=f"T{number % 3}", queue_id=0))
    odd = sorted((tmp_path / "consumequeue_ext" / "t" / "0").iterdir())[1]
    odd.write_bytes(odd.read_bytes()[:100])
    with read_small(tmp_path, consume_queue=ext) as store:
        found = store.get("t", 0, 0, COUNT, tags="T1").messages
    assert [each.queue_offset for each in found] == list(range(1, COUNT, 3))


def test_queues_of_batches(tmp_path: Path) -> None:
    """Files have two units each; the second of three files is too short."""
    (tmp_path / "batchconsumequeue" / "b" / "0").mkdir(parents=True)
    settings = ConsumeQueueSettings(batch_file_size_bytes=92)
    texts = [f"INNER_NUM\x012\x02INNER_BASE\x01{2 * at}\x02" for at in range(5)]
    batch = batch_of([("b", text, b"x") for text in texts])
    made = queues(tmp_path, settings)
    made.resume(0, batch.end_offset)
    made.dispatch(batch)
    expected = contents(made)
    made.close()
    files = sorted((tmp_path / "batchconsumequeue" / "b" / "0").iterdir())
    assert [each.stat().st_size for each in files] == [92, 92, 92]
    files[1].write_bytes(files[1].read_bytes()[:46])
    before = tree(tmp_path)
    reader = queues(tmp_path, settings, read_only=True)
    assert reader.resume(0, batch.end_offset) == 0
    assert reader.queues() == []
    reader.dispatch(batch)
    assert contents(reader) == expected
    reader.close()
    assert tree(tmp_path) == before
