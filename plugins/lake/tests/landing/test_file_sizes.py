"""Files of the size that was asked for: rows of a pass are gathered by table and partition."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import lakelog
from lakelog.format.record_batch import RecordBatch
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.log.records import NAMES, LogSpan, unpacked
from lakelog_lake.tables.data_files import FilePlacement, PartitionFiles
from lakelog_lake.tables.shape import Layout
from lakelog_lake.tasks.engines import in_process, processes, shares
from lakelog_lake.tasks.task import LandingSource, Task, TaskLimits, Written
from plugins.lake.tests.landing.passes import land
from plugins.lake.tests.landing.table_specs import land_spec
from plugins.lake.tests.landing.tables import any_kind, assert_exactly, files, keys_of, make

_TOPICS = 3
_MANY_TASKS = TaskLimits(task_bytes=8 << 10)


@any_kind
def test_a_pass_of_many_tasks_is_one_file_for_each_partition(
    kind: str, source: LandingSource, tmp_path: Path
) -> None:
    landed = land(source, make(kind, tmp_path / "t"), in_process, _MANY_TASKS)
    assert landed is not None
    assert landed.files == len(files(kind, tmp_path / "t")) == _TOPICS
    assert_exactly(kind, tmp_path / "t", keys_of(source.path, "S"))


def test_tables_of_topics_have_one_file_each(source: LandingSource, tmp_path: Path) -> None:
    spec = TableSpec(f"parquet:{tmp_path}/of_{{topic}}")
    land_spec(source, spec, _MANY_TASKS)
    for number in range(_TOPICS):
        assert len(files("parquet", tmp_path / f"of_topic-{number}")) == 1


def test_processes_write_one_file_each(source: LandingSource, tmp_path: Path) -> None:
    """And each of their tasks counts as progress."""
    done = list[int]()
    planned = list[Task]()
    bounds = TaskLimits(task_bytes=8 << 10, file_bytes=64 << 10)
    with processes(2, lambda: done.append(1)) as engine:

        def counting(tasks: Sequence[Task]) -> Sequence[Written]:
            planned.extend(tasks)
            return engine(tasks)

        land(source, make("parquet", tmp_path / "t"), counting, bounds)
    assert len(files("parquet", tmp_path / "t")) == 2 * _TOPICS
    assert len(done) == len(planned) > 2
    assert_exactly("parquet", tmp_path / "t", keys_of(source.path, "S"))


@pytest.mark.parametrize(
    ("count", "file_bytes", "at_once", "expected"),
    [
        (0, 100, 4, []),
        (1, 100, 4, [1]),
        (10, 10, 4, [2, 3, 2, 3]),
        (10, 50, 4, [5, 5]),
        (10, 99, 4, [5, 5]),
        (10, 100, 4, [10]),
    ],
)
def test_no_more_workers_than_files_of_the_size(
    count: int, file_bytes: int, at_once: int, expected: list[int]
) -> None:
    source = LandingSource(Path("s"), "S")
    spans = [LogSpan(10 * number, 10 * number + 10) for number in range(count)]
    tasks = [Task(source, span, (), file_bytes) for span in spans]
    found = shares(tasks, at_once)
    assert [len(each) for each in found] == expected
    assert [task for each in found for task in each] == tasks


# --- the limits of what is gathered -----------------------------------------------------------


@pytest.fixture
def rows(source: LandingSource) -> list[pa.RecordBatch]:
    """The rows of 300 messages in parts of 10, each part sorted by topic and queue."""
    with lakelog.open(source.path, mode="read") as store:
        pieces = [each for each in store.scan_pieces(0) if isinstance(each, RecordBatch)]
        whole = pa.Table.from_batches([unpacked(each, NAMES[1:])[0] for each in pieces])
    parts = [whole.slice(start, 10) for start in range(0, whole.num_rows, 10)]
    order = [(name, "ascending") for name in ("topic", "queue_id", "queue_offset")]
    return [part.sort_by(order).combine_chunks().to_batches()[0] for part in parts]


def _place(folder: Path, file_bytes: int = 1 << 20) -> FilePlacement:
    return FilePlacement(folder, Layout(partition=("topic",)), "S", "0", file_bytes)


def _of_partitions(rows: list[pa.RecordBatch], count: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Each row in one of so many partitions, in turns."""
    for batch in rows:
        for row in range(len(batch)):
            yield int(batch["physical_offset"][row].as_py()) % count, batch.slice(row, 1)


def test_rows_beyond_the_memory_are_in_the_same_files(
    rows: list[pa.RecordBatch], tmp_path: Path
) -> None:
    held = sum(each.nbytes for each in rows) // 8
    with PartitionFiles(held) as made:
        written = list[int]()
        for batch in rows:
            for topic in batch["topic"].unique().to_pylist():
                part = batch.filter(pa.compute.equal(batch["topic"], topic))
                made.add(0, _place(tmp_path), {"topic": topic}, [part])
            written.append(_size(tmp_path))
        found = made.finished()[0]
    assert len(found) == _TOPICS
    assert written[len(rows) // 2] > 0  # not only at the end
    groups = [parquet.ParquetFile(each.path).num_row_groups for each in found]
    assert 1 < max(groups) < len(rows) / 2
    for each in found:
        keys = parquet.read_table(each.path, columns=["queue_id", "queue_offset"]).to_pylist()
        for number in {row["queue_id"] for row in keys}:
            offsets = [row["queue_offset"] for row in keys if row["queue_id"] == number]
            assert offsets == sorted(offsets)
    assert sum(each.rows for each in found) == 300


def test_few_files_are_open_and_no_row_is_lost(rows: list[pa.RecordBatch], tmp_path: Path) -> None:
    """Partitions without end: what does not fit in memory goes to more files."""
    most, seen = 4, list[int]()
    with PartitionFiles(held_bytes=8 << 10, most_open=most) as made:
        for number, part in _of_partitions(rows, 50):
            made.add(0, _place(tmp_path), {"topic": str(number)}, [part])
            seen.append(_opened(tmp_path))
        found = made.finished()[0]
    assert max(seen) == most
    assert _opened(tmp_path) == 0
    counted = Counter[str]()
    for each in found:
        counted[str(each.partition["topic"])] += each.rows
    assert counted == Counter(str(number) for number, _ in _of_partitions(rows, 50))
    read = pa.concat_tables(parquet.read_table(each.path) for each in found)
    places = sorted(read["physical_offset"].to_pylist())
    assert places == sorted(each for batch in rows for each in batch["physical_offset"].to_pylist())


def test_partitions_in_memory_have_one_file_beside_others_that_are_open(
    rows: list[pa.RecordBatch], tmp_path: Path
) -> None:
    large, small = rows[:20], rows[20:]
    with PartitionFiles(held_bytes=sum(each.nbytes for each in rows) // 2, most_open=2) as made:
        for number, batch in enumerate(large):
            made.add(0, _place(tmp_path), {"topic": str(number % 2)}, [batch])
        for number, batch in enumerate(small):
            made.add(0, _place(tmp_path), {"topic": f"small {number}"}, [batch.slice(0, 1)])
        assert _opened(tmp_path) > 0
        found = made.finished()[0]
    assert Counter(each.partition["topic"] for each in found).most_common(1)[0][1] == 1


def test_an_error_removes_finished_and_open_files(
    rows: list[pa.RecordBatch], tmp_path: Path
) -> None:
    def fail() -> None:
        with PartitionFiles(held_bytes=8 << 10) as made:
            for number, part in _of_partitions(rows, 2):
                place = _place(tmp_path, 1 << 20 if number else 4 << 10)
                made.add(0, place, {"topic": str(number)}, [part])
            assert len(list(tmp_path.glob("*.parquet"))) > _opened(tmp_path) > 0
            raise OSError(5, "it fails")

    with pytest.raises(OSError, match="it fails"):
        fail()
    assert not list(tmp_path.glob("*.parquet"))


def test_many_short_runs_stay_as_they_come(
    rows: list[pa.RecordBatch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To sort them would take longer than to write them."""
    from lakelog_lake.tables import data_files

    monkeypatch.setattr(data_files, "_MOST_RUNS", 12)
    with PartitionFiles() as made:
        made.add(0, _place(tmp_path), {}, rows)
        (found,) = made.finished()[0]
    file = parquet.ParquetFile(found.path)
    assert file.num_row_groups == len(rows)
    offsets = file.read()["physical_offset"].to_numpy()
    assert (offsets == np.concatenate([each["physical_offset"].to_numpy() for each in rows])).all()


def _size(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.glob("*.parquet"))


def _opened(folder: Path) -> int:
    """The number of files in ``folder`` that this process has open."""
    links = Path("/proc/self/fd")
    return sum(os.readlink(links / each).startswith(f"{folder}/") for each in _fds(links))


def _fds(links: Path) -> list[str]:
    return [each for each in os.listdir(links) if os.path.islink(links / each)]
