"""What RocketMQ's users met when its log was not what it said; each test is named after an issue.

Numbers are those of apache/rocketmq's issues. Those about queues are in
``plugins/queues/tests/recovery``; what the real store itself makes of such logs, in
``tests/test_java_cut_logs.py``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from core.tests.recovery.support import (
    a_crashed_store,
    crash,
    flip,
    log_bytes,
    offsets,
    quarantine,
    recover_small,
    starts,
    tear,
    unconfirm,
    zero,
)
from core.tests.store.support import (
    SEGMENT,
    FaultyFiles,
    bodies,
    fill,
    open_small,
    overwrite,
    read_small,
)
from lakelog import Message, PutResult, Store
from lakelog.errors import LakelogError, StoreFailed
from lakelog.files.checkpoint import read_checkpoint
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import RECORD_CRC_BYTES
from lakelog.format.record import Frame, read_frame

pytestmark = pytest.mark.both_ways

SECTOR_BYTES = 512


def a_crashed_store_with_keys(path: Path, count: int = 20, **more: Any) -> list[PutResult]:
    with open_small(path, **more) as store:
        results = [
            store.put(Message("t", b"b" * 100, keys=f"{number:06}" * 400, queue_id=0))
            for number in range(count)
        ]
    crash(path)
    return results


def frame_of(path: Path, result: PutResult) -> tuple[bytes, Frame]:
    """A record as it stands in the log, and where its parts are."""
    record = log_bytes(path)[result.physical_offset : result.end_offset]
    return record, read_frame(memoryview(record), 0, len(record), result.physical_offset)


def passes_rocketmq(path: Path, result: PutResult) -> bool:
    """Whether RocketMQ's recovery takes it for whole: the lengths agree, and the body's CRC."""
    record, frame = frame_of(path, result)
    body = record[frame.body_at : frame.body_at + frame.body_length]
    return zlib.crc32(body) & 0x7FFFFFFF == int.from_bytes(record[8:12], "big")


@pytest.mark.parametrize("record_crc", [False, True])
@pytest.mark.parametrize("lost", [1, 2000])
def test_7437_the_end_of_the_last_record_was_never_written(
    lost: int, record_crc: bool, tmp_path: Path
) -> None:
    """Its body is whole, so that there it counted, with zeros for properties."""
    results = a_crashed_store_with_keys(tmp_path, record_crc=record_crc)
    last = results[-1]
    zero(tmp_path, last.end_offset - lost, last.end_offset)
    assert passes_rocketmq(tmp_path, last)
    unconfirm(tmp_path, last.physical_offset)
    report = recover_small(tmp_path)
    assert report.end_offset == last.physical_offset
    assert [each.offset for each in report.cut] == [last.physical_offset]
    with open_small(tmp_path) as store:
        assert offsets(store) == starts(results[:-1])
        assert store.queue_bounds("t", 0) == (0, len(results) - 1)


@pytest.mark.parametrize("sector", [0, 3])
def test_7437_a_sector_in_the_middle_of_the_properties_was_lost(
    sector: int, tmp_path: Path
) -> None:
    """Only the record's own checksum covers the properties."""
    results = a_crashed_store_with_keys(tmp_path, record_crc=True)
    bad = results[5]
    begin = bad.physical_offset + 300
    begin += -begin % SECTOR_BYTES + sector * SECTOR_BYTES
    length = min(SECTOR_BYTES, bad.end_offset - begin)
    assert length > 0
    overwrite(tmp_path, begin, b"0" * length)
    assert passes_rocketmq(tmp_path, bad)
    report = recover_small(tmp_path, require_record_crc=True)
    assert [(each.offset, each.end_offset) for each in report.damage] == [
        (bad.physical_offset, bad.end_offset)
    ]
    with open_small(tmp_path) as store:
        assert offsets(store) == starts(results[:5] + results[6:])


def syncs_of_segments(files: FaultyFiles) -> int:
    return sum(each.syncs for each in files.opened if each.path.parent.name in ("commitlog", "tmp"))


@pytest.mark.parametrize(
    "way",
    [lambda store: store.put(Message("t", b"later", queue_id=0)), Store.close],
    ids=["put", "close"],
)
def test_9713_the_flushed_position_moved_after_a_failed_sync(
    way: Callable[[Store], object], tmp_path: Path
) -> None:
    """There the next put was told that all before it was durable; the pages were gone."""
    files = FaultyFiles()
    store = open_small(tmp_path, files=files, flush="inline")
    results = fill(store, 3)
    durable = store.flushed_offset
    assert durable == results[-1].end_offset
    files.failing.add("sync")
    with pytest.raises(StoreFailed):
        store.put(Message("t", b"not durable", queue_id=0))
    files.failing.clear()  # a second sync would succeed
    syncs = syncs_of_segments(files)
    assert syncs >= 4
    with pytest.raises(LakelogError):
        way(store)
    assert syncs_of_segments(files) == syncs
    assert store.flushed_offset == durable
    assert read_checkpoint(RealFileSystem(), tmp_path).confirm_offset <= durable
    with suppress(LakelogError):
        store.close()
    assert (tmp_path / "abort").exists()
    with open_small(tmp_path) as again:
        assert again.recovery is not None
        assert not again.recovery.clean
        assert offsets(again)[:3] == starts(results)


@pytest.mark.parametrize("left", ["zeros", "units"])
def test_9728_the_last_file_of_a_queue_is_all_zeros_and_the_log_lost_its_messages(
    left: str, tmp_path: Path
) -> None:
    """There the queue's smallest offset was looked for in it, and the store did not start."""
    queues = {"consume_queue": {"file_entries": 20}}
    with open_small(tmp_path, **queues) as store:
        results = fill(store, 60)
        kept = fill(store, 25)[:20]  # the last five are in a file of their own
    crash(tmp_path)
    results += kept
    end = results[-1].end_offset
    for segment in sorted((tmp_path / "commitlog").iterdir()):
        here = max(0, end - int(segment.name))
        segment.write_bytes(segment.read_bytes()[:here].ljust(SEGMENT, b"\x00"))
    last = sorted((tmp_path / "consumequeue" / "t" / "0").iterdir())[-1]
    assert int(last.name) == 80 * 20
    if left == "zeros":
        last.write_bytes(bytes(400))
    with open_small(tmp_path, **queues) as store:
        assert store.queue_bounds("t", 0) == (0, 80)
        assert store.queue_units("t", 0, 0, 1000).offsets.tolist() == starts(results)
        assert store.put(Message("t", b"next", queue_id=0)).queue_offset == 80
        assert store.wait_dispatched()
        assert bodies(store.get("t", 0, 80, 1).messages) == [b"next"]


@pytest.mark.parametrize("place", ["next segment", "behind the end"])
def test_10017_old_records_of_a_reused_file_pass_every_checksum(place: str, tmp_path: Path) -> None:
    """There a file was used again without being cleared; its records state other places."""
    results = a_crashed_store(tmp_path, 20)
    first = log_bytes(tmp_path)[:SEGMENT]
    end = results[-1].end_offset
    assert end < SEGMENT
    if place == "next segment":
        data = log_bytes(tmp_path)[:end] + first[: SEGMENT - end - 8]  # no zeros in between
        blank = (SEGMENT - len(data)).to_bytes(4, "big") + bytes.fromhex("cbd43194")
        (tmp_path / "commitlog" / f"{0:020}").write_bytes(data + blank)
        (tmp_path / "commitlog" / f"{SEGMENT:020}").write_bytes(first)
    else:
        size = results[0].end_offset
        overwrite(tmp_path, end, first[: 3 * size])
    report = recover_small(tmp_path)
    assert report.end_offset == end
    assert report.cut
    with open_small(tmp_path) as store:
        assert offsets(store) == starts(results)
        assert not any(log_bytes(tmp_path)[end:])
        assert store.put(Message("t", b"next", queue_id=0)).queue_offset == 20


def a_store_with_a_stale_seal(path: Path, number: int) -> list[PutResult]:
    """The sector that held a record's checksum was lost; old text of properties is there."""
    results = a_crashed_store_with_keys(path, record_crc=True)
    bad = results[number]
    overwrite(path, bad.end_offset - RECORD_CRC_BYTES, b"9" * 19 + b"\x02")
    assert passes_rocketmq(path, bad)
    return results


def test_10017_stale_bytes_where_a_record_checksum_was(tmp_path: Path) -> None:
    """A record without a checksum is whole, unless the settings say that all of them have one."""
    results = a_store_with_a_stale_seal(tmp_path, -1)
    assert recover_small(tmp_path, dry_run=True).end_offset == results[-1].end_offset
    report = recover_small(tmp_path, require_record_crc=True, on_damage="cut-end")
    assert report.end_offset == results[-1].physical_offset
    with open_small(tmp_path) as store:
        assert offsets(store) == starts(results[:-1])


def test_10017_nobody_serves_a_record_whose_checksum_was_lost(tmp_path: Path) -> None:
    """Others go by what that recovery noted, also where their settings ask for no checksums."""
    results = a_store_with_a_stale_seal(tmp_path, 7)
    bad = results[7]
    report = recover_small(tmp_path, require_record_crc=True)
    (damage,) = report.damage
    assert (damage.offset, damage.end_offset) == (bad.physical_offset, bad.end_offset)
    assert "require_record_crc" in str(damage)
    whole = starts(results[:7] + results[8:])
    met: list[object] = []
    for _ in range(2):
        with read_small(tmp_path) as reader:
            assert [each.physical_offset for each in reader.scan(on_damage=met.append)] == whole
        with open_small(tmp_path) as store:
            assert offsets(store) == whole
            found = store.get("t", 0, 0, 100).messages
            assert [each.physical_offset for each in found] == whole
        crash(tmp_path)
    assert len(met) == 2


def test_10017_on_the_way_to_the_next_record_checksums_are_asked_for(tmp_path: Path) -> None:
    results = a_store_with_a_stale_seal(tmp_path, 8)
    flip(tmp_path, results[7])
    report = recover_small(tmp_path, require_record_crc=True)
    (damage,) = report.damage
    assert (damage.offset, damage.end_offset) == (
        results[7].physical_offset,
        results[8].end_offset,
    )


@pytest.mark.parametrize(("count", "torn"), [(20, False), (110, True)])
def test_10666_what_was_cut_comes_back_after_the_next_crash(
    count: int, torn: bool, tmp_path: Path
) -> None:
    """There cutting a log moved its end only: the bytes stayed, and were whole."""
    results = a_crashed_store(tmp_path, count)
    tear(tmp_path, results[10])
    report = recover_small(tmp_path, on_damage="truncate")
    end = results[10].physical_offset
    assert report.end_offset == end
    assert not any(log_bytes(tmp_path)[end:])
    assert sum(map(len, quarantine(tmp_path).values())) > (count - 12) * 400
    with open_small(tmp_path) as store:
        new = fill(store, 2)
    assert [each.size for each in new] == [each.size for each in results[10:12]]
    if torn:
        tear(tmp_path, new[1])
    crash(tmp_path)
    with open_small(tmp_path) as store:
        expected = [*results[:10], *new[: 1 if torn else 2]]
        assert offsets(store) == starts(expected)
        assert store.queue_bounds("t", 0) == (0, len(expected))
