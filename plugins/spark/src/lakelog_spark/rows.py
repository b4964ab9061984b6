"""What one task does: opens the store by itself, and turns its range of the log into rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import lakelog
from lakelog.sysflag import PREPARED
from lakelog_spark.columns import NAMES
from lakelog_spark.errors import CorruptLog
from lakelog_spark.options import ReadOptions
from lakelog_spark.plan import LogRange
from lakelog_spark.whole import record_batches

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.codec import RecordBatch
    from lakelog.pieces import Damage

_log = logging.getLogger("lakelog_spark")


def store_name(path: Path) -> str:
    """What the column ``store`` says: the store's UUID, or where it has none the folder's name."""
    from lakelog.files import RealFileSystem
    from lakelog.identity import read_identity

    identity = read_identity(RealFileSystem(), path)
    return path.resolve().name if identity is None else identity.uuid


def rows(options: ReadOptions, name: str, part: LogRange) -> Iterator[pa.RecordBatch]:
    """Every record of ``part`` that stands in a queue, in the log's order.

    Raises :class:`CorruptLog` at damage, unless that is to be skipped.
    """
    with lakelog.open(options.path, mode="read") as store:
        pieces = store.scan_pieces(part.start, part.end)
        for batch in record_batches(pieces, part, _skip if options.skip_corrupt else _fail):
            yield _table(batch, name)


def _table(batch: RecordBatch, name: str) -> pa.RecordBatch:
    """The batch under all of its columns, without prepared and rollback records."""
    import pyarrow as pa

    from lakelog.arrow import to_arrow

    fields = to_arrow(batch, columns=NAMES[1:])
    store = pa.repeat(pa.scalar(name, pa.string()), len(batch))
    table = pa.RecordBatch.from_arrays([store, *fields.columns], names=list(NAMES))
    queued = (batch.sys_flags & PREPARED) == 0
    return table if queued.all() else table.filter(pa.array(queued))


def _fail(damage: Damage) -> None:
    raise CorruptLog(damage)


def _skip(damage: Damage) -> None:
    _log.warning("%s", damage)
