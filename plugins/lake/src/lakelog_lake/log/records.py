"""The records of a range of the log, and the columns of a message in a table.

The key of a table is (store, topic, queue_id, queue_offset). Bodies are decompressed; one that
cannot be decompressed is returned as stored.

A range is read as a single batch, independently of the windows of the scan. A task accounts for
every byte of its range: as records, blank or damage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lakelog.arrow import to_arrow
from lakelog.errors import CorruptRecord
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.identity import read_identity
from lakelog.format import compression, layout
from lakelog.format.record_batch import Damage, Piece, RecordBatch
from lakelog_lake.errors import CorruptBody, CorruptLog
from lakelog_lake.log import wanted

TYPES: Final = {
    "store": "string",
    "topic": "string",
    "queue_id": "int",
    "queue_offset": "bigint",
    "physical_offset": "bigint",
    "store_size": "int",
    "message_id": "string",
    "unique_key": "string",
    "tags": "string",
    "keys": "array<string>",
    "properties": "map<string,string>",
    "body": "binary",
    "body_crc": "int",
    "flag": "int",
    "sys_flag": "int",
    "transaction_type": "string",
    "born_timestamp": "timestamp",
    "born_host": "string",
    "store_timestamp": "timestamp",
    "store_host": "string",
    "reconsume_times": "int",
    "prepared_transaction_offset": "bigint",
}
"""The Spark type of each column, in column order."""
NAMES: Final = tuple(TYPES)

ERROR: Final = "error"
"""The column of errors, which is last, and present with ``corrupt=collect`` only."""


def store_name(path: Path) -> str:
    """The value of the column ``store``: the store's UUID, or without one the folder's name."""
    identity = read_identity(RealFileSystem(), path)
    return path.resolve().name if identity is None else identity.uuid


def unpacked(
    batch: RecordBatch, names: Sequence[str]
) -> tuple[pa.RecordBatch, Mapping[int, CorruptRecord]]:
    """Return the columns ``names``, and by row the errors of bodies that stay compressed."""
    try:
        return to_arrow(batch, columns=names, decompress=True), {}
    except CorruptRecord:
        stored = to_arrow(batch, columns=names)
    bodies, errors = [], {}
    for row, message in enumerate(batch.decoded):
        bodies.append(message.body)
        if message.sys_flag & layout.COMPRESSED:
            try:
                bodies[row] = compression.decompress(message.body, message.sys_flag)
            except compression.NotUnpacked as error:
                errors[row] = CorruptRecord(str(error), offset=message.physical_offset)
    at = stored.schema.get_field_index("body")
    return stored.set_column(at, "body", pa.array(bodies, pa.binary())), errors


def record_batches(
    pieces: Iterable[Piece], part: wanted.NumberSpan, on_damage: Callable[[Damage], None]
) -> Iterator[RecordBatch]:
    """The records among ``pieces``, which must cover ``part``.

    A scan silently skips trailing zeros and missing segments. At the end of a log that is right;
    inside of it, it is damage.
    """
    at = part.low
    for piece in pieces:
        if isinstance(piece, RecordBatch):
            first = piece.base_offset + int(piece.starts[0])
        else:
            first = piece.offset
        if first > at:
            on_damage(_nothing(at, first))
        if isinstance(piece, Damage):
            on_damage(piece)
        elif isinstance(piece, RecordBatch):
            yield piece
        at = max(at, piece.end_offset)
    if at < part.end:
        on_damage(_nothing(at, part.end))


def _nothing(offset: int, end_offset: int) -> Damage:
    what = "there are zeros or nothing where records were; was a segment deleted, moved or cut?"
    return Damage(offset, end_offset, CorruptRecord(what, offset=offset))


@attrs.frozen
class LogSpan:
    """Records that start in ``start`` (inclusive) to ``end`` (exclusive), in bytes of the log."""

    start: int
    end: int


def merged(spans: Iterable[LogSpan]) -> tuple[LogSpan, ...]:
    """Merge spans that touch or overlap.

    :param spans: in the order of their starts
    """
    found: list[LogSpan] = []
    for each in spans:
        if found and each.start <= found[-1].end:
            found[-1] = LogSpan(found[-1].start, max(found[-1].end, each.end))
        else:
            found.append(each)
    return tuple(found)


def one_batch(batches: Iterator[RecordBatch], span: LogSpan) -> RecordBatch | None:
    """Copy all records into one batch; ``None`` if there are none.

    Each window is copied and released at once, so its memory is reused, and each page of the range
    is touched once.
    """
    whole = np.empty(span.end - span.start, np.uint8)
    starts: list[NDArray[np.int64]] = []
    base = at = 0
    decoder = None
    for batch in batches:
        decoder = batch.decoder
        first, behind = int(batch.starts[0]), int(batch.ends[-1])
        if not starts:
            base = batch.base_offset + first
        size = behind - first
        if at + size > len(whole):
            whole = np.concatenate([whole[:at], np.empty(2 * (at + size), np.uint8)])
        whole[at : at + size] = np.frombuffer(batch.buffer, np.uint8)[first:behind]
        starts.append(batch.starts + (at - first))
        at += size
    return RecordBatch(whole[:at].data, base, np.concatenate(starts), decoder) if starts else None


_log = logging.getLogger("lakelog_lake")


@attrs.define
class DamagePolicy:
    """Either skips damage and logs it, or ends the task.

    :ivar count: number of damaged ranges and bodies skipped
    """

    skip: bool
    count: int = 0

    def records(self, pieces: Iterable[Piece], span: LogSpan) -> Iterator[RecordBatch]:
        """The records among ``pieces``, which must cover ``span``."""
        return record_batches(pieces, wanted.NumberSpan(span.start, span.end), self.met)

    def met(self, damage: Damage) -> None:
        """Handle bytes that are no record; may raise :class:`~lakelog_lake.errors.CorruptLog`."""
        if not self.skip:
            raise CorruptLog(damage)
        self.count += 1
        _log.warning("%s", damage)

    def bodies(self, errors: Mapping[int, CorruptRecord]) -> None:
        """Handle bodies that cannot be unpacked, by row; may raise :class:`CorruptBody`."""
        for error in errors.values():
            if not self.skip:
                raise CorruptBody(error)
            _log.warning("%s; its row has the stored body", error)


def steps(batch: RecordBatch, rows: NDArray[np.int64], step_bytes: int) -> Iterator[RecordBatch]:
    """Split ``rows`` of a batch into parts of about ``step_bytes``, or of one larger record."""
    behind = np.cumsum(batch.sizes[rows], dtype=np.int64) // step_bytes
    for part in np.split(rows, np.flatnonzero(np.diff(behind)) + 1):
        if len(part):
            yield batch.take(part)
