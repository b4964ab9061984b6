"""Files of a queue of batches, against a plain Python model."""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.errors import CorruptQueue
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.queue_offsets import Units
from lakelog.message import Message
from lakelog_queues.files.batchqueue import BatchQueueFiles, inner_batches
from lakelog_testing.samples import record_batch

UNIT = Struct(">qiqqqhii")
FILE_BYTES = 4 * 46

Row = tuple[int, int, int, int, int, int]  # offset, size, code, time, base, count

STEPS = st.lists(
    st.one_of(
        st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), max_size=11),
        st.just("restart"),
        st.just("again"),
        st.integers(0, 400).map(lambda end: ("truncate", end)),
    ),
    max_size=12,
)


def opened(folder: Path, *, read_only: bool = False) -> BatchQueueFiles:
    queue = BatchQueueFiles(RealFileSystem(), folder / "cq", FILE_BYTES, read_only=read_only)
    queue.load()
    return queue


def append(queue: BatchQueueFiles, rows: list[Row]) -> None:
    table = np.array(rows, np.int64).reshape(-1, 6)
    offsets, sizes, codes, times, bases, counts = table.T
    queue.append(
        Units(bases, offsets, sizes.astype(np.int32), codes, counts.astype(np.int32)), times
    )


def rows_of(units: Units) -> list[tuple[int, int, int, int, int]]:
    columns = (units.offsets, units.sizes, units.tags_codes, units.queue_offsets, units.counts)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def without_times(rows: list[Row]) -> list[tuple[int, int, int, int, int]]:
    return [(*row[:3], *row[4:]) for row in rows]


def expected_files(rows: list[Row]) -> dict[str, bytes]:
    return {
        f"{at * 46:020d}": b"".join(UNIT.pack(*row, -1, 0) for row in rows[at : at + 4]).ljust(
            FILE_BYTES, b"\0"
        )
        for at in range(0, len(rows), 4)
    }


def on_disk(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "cq").glob("*")}


def more(rows: list[Row], sizes: list[tuple[int, int]]) -> list[Row]:
    """Further rows, with a gap of a byte between the records of the log."""
    found = list(rows)
    for size, count in sizes:
        offset = found[-1][0] + found[-1][1] + 1 if found else 3
        base = found[-1][4] + found[-1][5] if found else 0
        found.append((offset, size, -size, 1000 + offset, base, count))
    return found[len(rows) :]


def check(queue: BatchQueueFiles, rows: list[Row]) -> None:
    end = rows[-1][4] + rows[-1][5] if rows else 0
    assert queue.end_physical == (rows[-1][0] + rows[-1][1] if rows else 0)
    assert queue.last_physical == (rows[-1][0] if rows else -1)
    for first in range(-1, end + 2):
        holding = [at for at, row in enumerate(rows) if row[4] <= first < row[4] + row[5]]
        wanted = without_times(rows[holding[0] : holding[0] + 6]) if holding else []
        assert rows_of(queue.units(first, 6)) == wanted
    for minimum in (0, 3, 4, 50, 10**9):
        there = [row[4] for row in rows if row[0] >= minimum]
        assert queue.bounds(minimum) == ((there[0] if there else end), end)


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_files_and_answers_are_those_of_a_plain_model(
    steps: list[list[tuple[int, int]] | str | tuple[str, int]],
) -> None:
    with TemporaryDirectory() as name:
        folder, rows = Path(name), list[Row]()
        queue, reader = opened(folder), opened(folder, read_only=True)
        for step in steps:
            if isinstance(step, list):
                new = more(rows, step)
                append(queue, rows[-3:] + new)  # a run of which a part is dispatched again
                rows += new
            elif step == "again":
                append(queue, rows)
            elif step == "restart":
                queue.close()
                queue = opened(folder)
            else:
                queue.truncate(int(step[1]))
                rows = [row for row in rows if row[0] < int(step[1])]
                reader.close()
                reader = opened(folder, read_only=True)
            assert on_disk(folder) == expected_files(rows)
            check(queue, rows)
            check(reader, rows)
        queue.close()
        reader.close()


def test_a_reader_changes_nothing_and_sees_files_go_from_the_front(tmp_path: Path) -> None:
    rows = more([], [(5, 2)] * 10)
    queue, reader = opened(tmp_path), opened(tmp_path, read_only=True)
    assert reader.bounds(0) == (0, 0)
    append(queue, rows)
    check(reader, rows)
    reader.close()
    reader = opened(tmp_path, read_only=True)
    (tmp_path / "cq" / f"{0:020d}").unlink()
    assert reader.bounds(0) == (8, 20)
    assert rows_of(reader.units(7, 2)) == []
    assert rows_of(reader.units(9, 2)) == without_times(rows[4:6])


def test_what_stands_behind_a_hole_does_not_come_back(tmp_path: Path) -> None:
    rows = more([], [(5, 2)] * 7)
    queue = opened(tmp_path)
    append(queue, rows)
    queue.close()
    overwrite = on_disk(tmp_path)[f"{0:020d}"]
    file = tmp_path / "cq" / f"{0:020d}"
    file.write_bytes(overwrite[: 2 * 46] + bytes(46) + overwrite[3 * 46 :])
    queue = opened(tmp_path)
    check(queue, rows[:2])
    assert on_disk(tmp_path) == expected_files(rows[:2])
    queue.truncate(rows[1][0])
    assert on_disk(tmp_path) == expected_files(rows[:1])
    append(queue, [(99, 5, 0, 0, 7, 2)])
    assert queue.units(4, 9).queue_offsets.tolist() == [7], "in a gap reading goes on behind it"
    queue.close()


def test_units_that_no_reader_could_pass_are_left_out(tmp_path: Path) -> None:
    queue = opened(tmp_path)
    bad = [(1, 5, 0, 0, 0, 0), (2, 0, 0, 0, 0, 1), (3, 5, 0, 0, -1, 1), (4, 5, 0, 0, 0, 1 << 15)]
    append(queue, [*bad, (9, 5, 0, 0, 0, 1)])
    assert on_disk(tmp_path) == expected_files([(9, 5, 0, 0, 0, 1)])
    queue.close()


def test_files_of_another_length_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cq").mkdir()
    (tmp_path / "cq" / f"{0:020d}").write_bytes(bytes(46))
    with pytest.raises(CorruptQueue, match="it has 46 bytes"):
        opened(tmp_path)


def test_records_of_batches_become_units() -> None:
    stated = [
        {"INNER_BASE": "0", "INNER_NUM": "3"},
        {"INNER_NUM": "3"},
        {"INNER_BASE": "x", "INNER_NUM": "3"},
        {"INNER_BASE": "3", "INNER_NUM": "40000"},
        {"INNER_BASE": "3", "INNER_NUM": "0"},
        {"INNER_BASE": "3", "INNER_NUM": "2", "more": "1"},
    ]
    batch = record_batch([Message("b", b"x", tags="TagA", properties=each) for each in stated])
    units, times = inner_batches(batch)
    assert units.queue_offsets.tolist() == [0, 3]
    assert units.counts.tolist() == [3, 2]
    assert units.offsets.tolist() == batch.physical_offsets[[0, 5]].tolist()
    assert units.sizes.tolist() == batch.sizes[[0, 5]].tolist()
    assert units.tags_codes.tolist() == [2598919, 2598919]
    assert times.tolist() == batch.store_timestamps_ms[[0, 5]].tolist()


def test_a_file_goes_once_its_last_record_is_gone(tmp_path: Path) -> None:
    queue, rows = opened(tmp_path), more([], [(5, 2)] * 10)
    append(queue, rows)
    assert not queue.exclude_before(rows[2][0])
    assert queue.remove_excluded() == 0
    check(queue, rows)
    assert queue.exclude_before(rows[4][0])
    assert queue.remove_excluded() == 1
    assert rows_of(queue.units(0, 9)) == []
    assert rows_of(queue.units(8, 9)) == without_times(rows[4:])
    queue.close()
