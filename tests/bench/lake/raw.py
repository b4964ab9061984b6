"""The raw limit: processes that decode ranges of a store to Arrow and write them as Parquet.

Nothing is sorted, planned or committed. The files are like those of a landing: the same columns,
compression and encodings, row groups of about the same size.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

import lakelog
from lakelog.arrow import to_arrow
from lakelog.format.record_batch import RecordBatch

_STEP_BYTES: Final = 8 << 20
_REPEATING: Final = (
    *("topic", "queue_id", "flag", "sys_flag", "tags", "transaction_type", "born_host"),
    *("store_host", "reconsume_times", "properties.key_value.key"),
)
_BOUNDED: Final = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp")

Range = tuple[Path, int, int, Path]
"""A store, start and end offset, and the file to write."""


def write(what: Range) -> int:
    """Write one range, durably; return its number of rows."""
    store, start, end, target = what
    rows = 0
    with lakelog.open(store, mode="read") as opened, target.open("xb") as file:
        writer = None
        for table in steps(opened.scan_pieces(start, end), _STEP_BYTES):
            writer = writer or _writer(file, table.schema)
            writer.write_table(table)
            rows += table.num_rows
        if writer is not None:
            writer.close()
        file.flush()
        os.fsync(file.fileno())
    return rows


def steps(pieces: Iterator[Any], least_bytes: int) -> Iterator[pa.Table]:
    """The columns of pieces of the log, in tables of at least so many bytes."""
    held: list[pa.RecordBatch] = []
    size = 0
    for piece in pieces:
        if isinstance(piece, RecordBatch):
            held.append(to_arrow(piece, decompress=True))
            size += held[-1].nbytes
            if size >= least_bytes:
                yield pa.Table.from_batches(held)
                held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _writer(file: Any, schema: pa.Schema) -> parquet.ParquetWriter:
    return parquet.ParquetWriter(
        file,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=list(_REPEATING),
        write_statistics=list(_BOUNDED),
        store_schema=False,
    )


class Processes:
    """A pool of processes that write ranges."""

    def __init__(self, count: int) -> None:
        self._pool = get_context("forkserver").Pool(count)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.terminate()
        self._pool.join()

    def write(self, store: Path, spans: list[tuple[int, int]], folder: Path) -> int:
        """Write a file for each of ``spans``; return the number of rows."""
        folder.mkdir(parents=True)
        tasks = [(store, start, end, folder / f"{start:020d}.parquet") for start, end in spans]
        return sum(self._pool.imap_unordered(write, tasks))
