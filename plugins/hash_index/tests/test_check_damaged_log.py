"""What leads into damage of the log is no problem of queues and index."""

from __future__ import annotations

from pathlib import Path

import lakelog
from lakelog import Message
from lakelog_doctor.check import check
from lakelog_hash_index import plugin


def opened(path: Path) -> lakelog.Store:
    return lakelog.open(
        path, plugins=[plugin], flush="none", segment_size_bytes="16KiB", preallocate=False
    )


def test_units_and_keys_of_a_damaged_record_are_no_problems(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        results = [
            store.put(Message("t", b"b" * 90, queue_id=each % 2, keys=f"k{each}"))
            for each in range(200)
        ]
    (tmp_path / "abort").touch()
    hurt = results[100]
    segment = tmp_path / "commitlog" / f"{hurt.physical_offset // 16384 * 16384:020d}"
    data = bytearray(segment.read_bytes())
    data[hurt.physical_offset % 16384 + 100] ^= 1
    segment.write_bytes(data)
    report = lakelog.recover(
        tmp_path, plugins=[plugin], segment_size_bytes="16KiB", preallocate=False
    )
    assert [each.offset for each in report.damage] == [hurt.physical_offset]
    assert list(check(tmp_path, plugins=[plugin])) == []
