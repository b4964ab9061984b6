"""Merges small Parquet files into one with the same rows, sorted by store, queue and offset."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from lakelog_lake.tables.parquet_writer import ParquetCompression, parquet_writer

if TYPE_CHECKING:
    import pyarrow as pa

ORDER: Final = ("store", "queue_id", "queue_offset", "physical_offset")
MOST_UNPACKED_BYTES: Final = 512 << 20
"""Most bytes merged at once; a merge needs a few times as much memory."""
_STEP_ROWS: Final = 16_384

_Named = TypeVar("_Named")


@attrs.frozen
class Sizes:
    """The size of a Parquet file.

    :ivar stored: length of the file in bytes
    :ivar unpacked: bytes of its uncompressed columns
    """

    stored: int
    unpacked: int


def sizes(path: Path) -> Sizes:
    """Read the size of a file from its footer."""
    from pyarrow import parquet

    found = parquet.read_metadata(path)
    groups = (found.row_group(number) for number in range(found.num_row_groups))
    return Sizes(path.stat().st_size, sum(each.total_byte_size for each in groups))


def bins(files: Iterable[tuple[_Named, Sizes]], target_bytes: int) -> Iterator[list[_Named]]:
    """Yield groups of at least two files to merge into one, in the given order.

    :param files: each file with its size
    :param target_bytes: largest stored size of a group
    """
    held: list[_Named] = []
    stored = unpacked = 0
    for name, size in files:
        full = stored + size.stored > target_bytes
        if held and (full or unpacked + size.unpacked > MOST_UNPACKED_BYTES):
            if len(held) > 1:
                yield held
            held, stored, unpacked = [], 0, 0
        held.append(name)
        stored += size.stored
        unpacked += size.unpacked
    if len(held) > 1:
        yield held


def merge(paths: Sequence[Path], made: Path) -> Any:
    """Merge the rows of ``paths`` into the new file ``made``, durably.

    :returns: the Parquet metadata of ``made``
    """
    import pyarrow as pa
    from pyarrow import parquet

    parts = [parquet.read_table(path, partitioning=None) for path in paths]
    table = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    order = [(name, "ascending") for name in ORDER if name in table.column_names]
    indices = table.select([name for name, _ in order])
    places = pa.compute.sort_indices(indices, sort_keys=order)
    steps = (places.slice(at, _STEP_ROWS) for at in range(0, len(places), _STEP_ROWS))
    return write(table.schema, map(table.take, steps), made)


def write(schema: pa.Schema, parts: Iterable[pa.Table], made: Path) -> Any:
    """Write ``parts`` to the new file ``made``, durably; return its Parquet metadata."""
    with made.open("xb") as file:
        with parquet_writer(file, schema, ParquetCompression.ZSTD) as writer:
            for part in parts:
                writer.write_table(part)
        file.flush()
        os.fsync(file.fileno())
    return writer.writer.metadata
