"""Bodies that an append callback stores otherwise are rows as they were put; without Spark.

Executors know the callback by what is installed and by the store's own settings file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import lakelog
from lakelog import Message
from lakelog.codec import RecordBatch
from lakelog.format.sysflag import COMPRESSED
from lakelog_lake.log.columns import store_name
from lakelog_lake.log.range_reader import DamagePolicy, LogSpan, one_batch
from lakelog_lake.reading.options import ReadOptions
from lakelog_lake.reading.plan import plan
from lakelog_lake.reading.rows import rows
from lakelog_lake.tasks.reader import Reader

BODIES = [b"%04d " % at * 100 for at in range(300)]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose callback is installed, and named in the store's settings file."""
    installed = tmp_path / "site" / "compressing-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Name: compressing\nVersion: 1.0\n")
    point = "[lakelog]\ncompressing = examples.compress_bodies:plugin\n"
    (installed / "entry_points.txt").write_text(point)
    monkeypatch.syspath_prepend(installed.parent)
    path = tmp_path / "s"
    (path / "lakelog").mkdir(parents=True)
    settings = 'append = "compress"\nflush = "inline"\nsegment_size_bytes = "16KiB"\n'
    (path / "lakelog" / "lakelog.toml").write_text(settings)
    with lakelog.open(path) as store:
        store.put_batch([Message("t", each, tags=f"t{at % 2}", queue_id=0)
            for at, each in enumerate(BODIES)])  # fmt: skip  # one call
    return path


@pytest.mark.parametrize("decompress", ["true", "false"])
@pytest.mark.parametrize("more", [{}, {"tags": "t1"}], ids=["all", "some"])
def test_rows(path: Path, decompress: str, more: dict[str, str]) -> None:
    given = ReadOptions.of({"path": str(path), "decompress": decompress, **more})
    with lakelog.open(path, mode="read") as store:
        parts = plan(store, given)
        stored = [bytes(body) for batch in batches(store) for body in batch.bodies]
    found = [row for part in parts for table in rows(given, store_name(path), part)
        for row in table.to_pylist()]  # fmt: skip  # one comprehension
    assert [row["body"] for row in found] == BODIES[len(more) :: len(more) + 1]
    assert not any(row["sys_flag"] & COMPRESSED for row in found)
    assert max(map(len, stored)) < 100


def test_what_lands(path: Path) -> None:
    with lakelog.open(path, mode="read") as store:
        whole = one_batch(batches(store), LogSpan(0, store.max_offset))
    assert whole is not None
    found = Reader(whole, DamagePolicy(skip=False), 4096).columns(np.arange(0, len(whole), 2))
    bodies = [body for each in found for body in each.column("body").to_pylist()]
    assert bodies == BODIES[::2]


def batches(store: lakelog.Store) -> Iterator[RecordBatch]:
    return (each for each in store.scan_pieces() if isinstance(each, RecordBatch))
