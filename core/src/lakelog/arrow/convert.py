"""The columns of the message table, and the conversion of records to them.

Columns that are not requested cost nothing. Conversion is vectorised, except for decompression of
bodies, and for hosts: each distinct host is formatted once. All columns are nullable. Times are
microseconds since 1970 in UTC, because Spark and Iceberg do not support milliseconds.

Parts of a buffer are copied once, by NumPy as a table, or by Arrow's ``take``. Short parts of equal
length become the rows of a table. Otherwise the whole buffer becomes an array that alternates parts
and gaps; ``take`` then copies the parts. Offsets must ascend, so parts in another order are
selected by permuted indices.

A column stands in ``_COLUMNS`` with its type and values. Its type in tables is in
``lakelog_lake.log.records``, and Spark's way to write it in ``lakelog_spark.writing.writer``.

Messages of one producer often have property strings of one layout: equal length, and the same names
at the same positions. Each property is then a slice of the table of these strings. Other strings
are split at the separators of all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lakelog.arguments import WrongValue, listed, shown
from lakelog.errors import CorruptRecord
from lakelog.format import layout
from lakelog.format.compression import NotUnpacked, decompress
from lakelog.format.message_id import decode_host
from lakelog.format.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQUE_KEY
from lakelog.format.record_batch import LONG_BYTES, SUFFIX_BYTES, RecordBatch, anywhere
from lakelog.lazy import cached_property
from lakelog.message import Body

Longs = NDArray[np.int64]

Octets = NDArray[np.uint8]

_SHORT_BYTES: Final = 1024

_MOST_BYTES: Final = (1 << 31) - 1

_LARGEST_TABLE: Final = 16
"""Largest size of a rows-by-names table, in cells per property."""


def slices(buffer: Body, positions: Longs, lengths: Longs) -> pa.BinaryArray:
    """``buffer[position : position + length]`` for each position, as ``binary``.

    :param positions: in bytes, in any order; parts may overlap
    :param lengths: in bytes, one per position
    """
    count = len(positions)
    if not count:
        return pa.array([], pa.binary())
    width = int(lengths[0])
    if 0 < width <= _SHORT_BYTES and count * width <= _MOST_BYTES and (lengths == width).all():
        return of_one_width(table_of(buffer, positions, width))
    order = None
    if count > 1 and (positions[1:] < positions[:-1]).any():
        order = np.argsort(positions, kind="stable")
        positions, lengths = positions[order], lengths[order]
    base = int(positions[0])
    ends = positions + lengths
    if int(ends.max()) - base > _MOST_BYTES or (positions[1:] < ends[:-1]).any():
        return _one_by_one(buffer, positions, ends, order)
    # Offsets are start and end of each part in turn. So even elements are the parts, and odd
    # elements are the gaps between them.
    offsets = np.stack((positions - base, ends - base), axis=1).astype(np.int32)
    stretch = pa.py_buffer(memoryview(buffer)[base : int(ends[-1])])
    laid = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), stretch]
    )
    parts = 2 * np.arange(count) if order is None else 2 * np.argsort(order)
    return laid.take(pa.array(parts))


def table_of(buffer: Body, positions: Longs, width: int) -> Octets:
    """The ``width`` bytes at each position, as an array of shape ``(len(positions), width)``."""
    found = anywhere(buffer, np.dtype((np.void, width)))[positions]
    return found.view(np.uint8).reshape(-1, width)


def of_one_width(table: Octets) -> pa.BinaryArray:
    """Each row of ``table``, which has shape ``(count, width)``, as a value."""
    count, width = table.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    parts = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(table))]
    return pa.BinaryArray.from_buffers(pa.binary(), count, parts)


def _one_by_one(buffer: Body, positions: Longs, ends: Longs, order: Longs | None) -> Any:
    """Copy parts that overlap, or whose distances exceed 32 bits."""
    view = memoryview(buffer)
    parts = [view[a:b] for a, b in zip(positions.tolist(), ends.tolist(), strict=True)]
    made = pa.array([bytes(part) for part in parts], pa.binary())
    return made if order is None else made.take(pa.array(np.argsort(order)))


def as_text(array: pa.BinaryArray) -> pa.StringArray:
    """``array`` as strings; invalid UTF-8 is replaced as by ``bytes.decode``."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [
            None if each is None else each.decode(errors="replace") for each in array.to_pylist()
        ]
        return pa.array(texts, pa.string())


def parts_of(array: pa.BinaryArray) -> tuple[Octets, Longs]:
    """The bytes of a whole array, and the start of each element, followed by the last end."""
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4).astype(np.int64)
    octets = (
        np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    )
    return octets, bounds


def alike_properties(table: Octets) -> dict[bytes, slice] | None:
    """The columns of ``table`` with the last value of each name; ``None`` if layouts differ.

    :param table: one property string per row, at least one row
    """
    values, fixed = _parts(table[0].tobytes())
    marks = np.count_nonzero(table == layout.NAME_VALUE_SEPARATOR[0])
    marks += np.count_nonzero(table == layout.PROPERTY_SEPARATOR[0])
    first = table[0]
    of_first = (first == layout.NAME_VALUE_SEPARATOR[0]) | (first == layout.PROPERTY_SEPARATOR[0])
    # Every separator of the first row must be in every row, and there must be no others.
    if marks != len(table) * int(of_first.sum()):
        return None
    fixed |= of_first
    return values if bool((table[:, fixed] == first[fixed]).all()) else None


def _parts(row: bytes) -> tuple[dict[bytes, slice], NDArray[np.bool_]]:
    """The position of each name's value in a row, and a mask of the bytes that belong to names."""
    values: dict[bytes, slice] = {}
    names = np.zeros(len(row), np.bool_)
    start = 0
    for each in row.split(layout.PROPERTY_SEPARATOR):
        name, separator, value = each.partition(layout.NAME_VALUE_SEPARATOR)
        if separator:
            mark = start + len(name)
            names[start:mark] = True
            values[name] = slice(mark + 1, mark + 1 + len(value))
        start += len(each) + len(layout.PROPERTY_SEPARATOR)
    return values, names


@attrs.frozen(eq=False)
class Split:
    """Non-empty pieces in order, as arrays with one element per piece.

    :ivar rows: row of the piece
    :ivar starts: position of its first byte
    :ivar ends: position after its last byte
    """

    rows: Longs
    starts: Longs
    ends: Longs

    def __len__(self) -> int:
        return len(self.rows)


def split(octets: Octets, bounds: Longs, separator: int) -> Split:
    """The non-empty pieces of each row.

    :param bounds: start of each row in ``octets``, and the end of the last one
    :param separator: the value of one byte
    """
    low = int(bounds[0])
    # A piece starts at the start of a row or after a separator, and ends at a separator or at the
    # end of a row. Sorting both lists pairs them.
    marks = np.flatnonzero(octets[low : int(bounds[-1])] == separator) + low
    starts = np.sort(np.concatenate((bounds[:-1], marks + 1)), kind="stable")
    ends = np.sort(np.concatenate((bounds[1:], marks)), kind="stable")
    counts = np.diff(np.searchsorted(marks, bounds)) + 1
    rows = np.repeat(np.arange(len(counts)), counts)
    some = ends > starts
    return Split(rows[some], starts[some], ends[some])


def first_mark(octets: Octets, pieces: Split, mark: int) -> Longs:
    """The position of the first ``mark`` in each piece; -1 if there is none."""
    if not len(pieces):
        return np.empty(0, np.int64)
    low = int(pieces.starts[0])
    marks = np.flatnonzero(octets[low : int(pieces.ends[-1])] == mark) + low
    if len(marks) == len(pieces) and bool(((marks >= pieces.starts) & (marks < pieces.ends)).all()):
        return marks
    if not len(marks):
        return np.full(len(pieces), -1)
    found = marks[np.minimum(np.searchsorted(marks, pieces.starts), len(marks) - 1)]
    return np.where((found >= pieces.starts) & (found < pieces.ends), found, -1)


class PropertyColumns:
    """The properties of the records of one batch; the last value wins if a name repeats."""

    def __init__(self, batch: RecordBatch) -> None:
        self._count = len(batch)
        raw = slices(batch.buffer, batch.property_positions, batch.property_lengths)
        self._octets, self._bounds = parts_of(raw)

    @cached_property
    def _table(self) -> Octets | None:
        """All property strings as rows of a table, if they have equal length."""
        width = int(self._bounds[1] - self._bounds[0]) if self._count else 0
        if not width or (np.diff(self._bounds) != width).any():
            return None
        first = int(self._bounds[0])
        return self._octets[first : first + self._count * width].reshape(-1, width)

    @cached_property
    def _alike(self) -> dict[bytes, slice] | None:
        return None if self._table is None else alike_properties(self._table)

    @cached_property
    def _pieces(self) -> tuple[Split, Longs]:
        """The properties, with the position of the separator after each name."""
        pieces = split(self._octets, self._bounds, layout.PROPERTY_SEPARATOR[0])
        marks = first_mark(self._octets, pieces, layout.NAME_VALUE_SEPARATOR[0])
        named = marks >= 0
        if not named.all():
            pieces = Split(pieces.rows[named], pieces.starts[named], pieces.ends[named])
            marks = marks[named]
        return pieces, marks

    def values(self, name: str) -> pa.BinaryArray:
        """The value of the property ``name`` in each record, or null."""
        if self._table is not None and self._alike is not None:
            part = self._alike.get(name.encode())
            if part is None:
                return pa.nulls(self._count, pa.binary())
            return of_one_width(self._table[:, part])
        pieces, marks = self._pieces
        found = np.full(self._count, -1)
        these = self._named(name.encode())
        # the last assignment wins, as required for a repeated name
        found[pieces.rows[these]] = these
        there = found >= 0
        chosen = found[there]
        begins = marks[chosen] + 1
        values = slices(self._octets.data, begins, pieces.ends[chosen] - begins)
        if there.all():
            return values
        places = np.cumsum(there) - 1
        return values.take(pa.array(places, mask=~there))

    def _named(self, name: bytes) -> Longs:
        """The indices of properties with this name."""
        pieces, marks = self._pieces
        these = np.flatnonzero(marks - pieces.starts == len(name))
        if not len(these):
            return these
        found = anywhere(self._octets.data, np.dtype((np.bytes_, len(name))))
        return np.asarray(these[found[pieces.starts[these]] == name])

    def texts(self, name: str) -> pa.StringArray:
        """The value of ``name`` in each record as text, or null."""
        return as_text(self.values(name))

    def words(self, name: str) -> pa.ListArray:
        """The words of the property ``name`` in each record; empty if it is missing."""
        octets, bounds = parts_of(self.values(name))
        words = split(octets, bounds, ord(KEY_SEPARATOR))
        texts = as_text(slices(octets.data, words.starts, words.ends - words.starts))
        return pa.ListArray.from_arrays(self._offsets(words.rows), texts)

    def _offsets(self, rows: Longs) -> pa.Array:
        """The start of each row's elements, for elements in row order."""
        offsets = np.zeros(self._count + 1, np.int32)
        np.cumsum(np.bincount(rows, minlength=self._count), out=offsets[1:])
        return pa.array(offsets)

    def maps(self) -> pa.MapArray:
        """All properties of each record."""
        pieces, marks = self._pieces
        data = self._octets.data
        names = slices(data, pieces.starts, marks - pieces.starts)
        last = _last_of_each(pieces.rows, names, self._count)
        ends = pieces.ends
        if not last.all():
            names = names.filter(pa.array(last))
            pieces, marks, ends = (
                Split(pieces.rows[last], pieces.starts[last], ends[last]),
                marks[last],
                ends[last],
            )
        values = slices(data, marks + 1, ends - marks - 1)
        return pa.MapArray.from_arrays(self._offsets(pieces.rows), as_text(names), as_text(values))


def _last_of_each(rows: Longs, names: pa.BinaryArray, count: int) -> NDArray[np.bool_]:
    """For each property, whether it is the last of its name in its record.

    Names with invalid UTF-8 are compared after replacement of the invalid bytes.
    """
    if not len(rows):
        return np.ones(0, np.bool_)
    coded = as_text(names).dictionary_encode()
    different = len(coded.dictionary)
    keys = rows * different + coded.indices.to_numpy()
    # With repeated indices, NumPy's assignment keeps the last value, which marks the last property
    # of each name in a record. Where that table would be too large, a stable sort finds the same.
    if count * different <= _LARGEST_TABLE * len(rows) + 4096:
        table = np.empty(count * different, np.int64)
        table[keys] = np.arange(len(keys))
        return np.asarray(table[keys] == np.arange(len(keys)))
    order = np.argsort(keys, kind="stable")
    last = np.ones(len(keys), np.bool_)
    last[order[:-1]] = keys[order[1:]] != keys[order[:-1]]
    return last


_DIGITS: Final = np.frombuffer("".join(f"{each:02X}" for each in range(256)).encode(), np.uint16)
"""The two hexadecimal digits of each byte."""

_LAST_MS: Final = ((1 << 63) - 1) // 1000

_TRANSACTIONS: Final = tuple(layout.Transaction(each << 2).name for each in range(4))

_TIME: Final = pa.timestamp("us", tz="UTC")


def schema(columns: Iterable[str] | None = None) -> pa.Schema:
    """The schema of ``columns`` in the given order, or of all columns.

    Raises ``ValueError`` for an unknown or repeated name, and ``TypeError`` for a single string.
    """
    wanted = "a list of names, such as ['body']"
    names = COLUMNS if columns is None else tuple(listed("columns", columns, wanted))
    unknown = [name for name in names if not isinstance(name, str) or name not in _COLUMNS]
    if unknown:
        raise WrongValue(f"column {shown(unknown[0])} is unknown; there are {', '.join(COLUMNS)}")
    if len(set(names)) < len(names):
        raise WrongValue(f"a column is given twice: {', '.join(names)}")
    return pa.schema([(name, _COLUMNS[name][0]) for name in names])


def empty(columns: Iterable[str] | None = None) -> pa.RecordBatch:
    """A record batch without rows."""
    wanted = schema(columns)
    return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in wanted], schema=wanted)


def to_arrow(
    batch: RecordBatch, columns: Iterable[str] | None = None, decompress: bool = False
) -> pa.RecordBatch:
    """Convert the records of ``batch`` to rows, in order; the result does not refer to its buffer.

    Every column holds the record's own values. A message found through a light queue has the topic
    and queue offset of its own queue. Invalid UTF-8 is replaced.

    ``transaction_type`` is a name of ``Transaction``. If the property is missing, ``keys`` is
    empty, and ``tags`` and ``unique_key`` are null. Times outside the range of microseconds are
    clipped. ``body`` and ``sys_flag`` come from the batch's decoder, if it has one.

    :param batch: checked records, at any positions of its buffer and in any order
    :param columns: names of :data:`~lakelog.arrow.COLUMNS`, in the desired order; ``None`` is all
    :param decompress: whether compressed bodies are unpacked; ``sys_flag`` stays as stored

    Raises ``ValueError`` for an unknown column, :class:`~lakelog.errors.CorruptRecord` for a body
    that cannot be unpacked, and :class:`~lakelog.errors.DecodeFailed` for one whose original cannot
    be restored.
    """
    wanted = schema(columns)
    rows = _Rows(batch, decompress)
    arrays = [_COLUMNS[each.name][1](rows) for each in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


class _Rows:
    """A batch of records, with intermediate results that several columns share."""

    def __init__(self, batch: RecordBatch, decompress: bool) -> None:
        self.batch = batch
        self.decompress = decompress

    @cached_property
    def properties(self) -> PropertyColumns:
        return PropertyColumns(self.batch)


def _topics(rows: _Rows) -> pa.StringArray:
    batch = rows.batch
    return as_text(slices(batch.buffer, batch.topic_positions, batch.topic_lengths))


def _times(times_ms: Longs) -> pa.Array:
    us = np.clip(times_ms, -_LAST_MS, _LAST_MS) * 1000
    # As it is: a conversion by Arrow takes as long as all other columns of numbers.
    return pa.Array.from_buffers(_TIME, len(us), [None, pa.py_buffer(us)])


def _transactions(rows: _Rows) -> pa.StringArray:
    codes = (rows.batch.sys_flags & layout.TRANSACTION_MASK) >> 2
    return pa.array(_TRANSACTIONS).take(pa.array(codes))


def _numbers(name: str) -> Callable[[_Rows], pa.Array]:
    return lambda rows: pa.array(getattr(rows.batch, name))


def bodies(batch: RecordBatch, unpack: bool) -> pa.BinaryArray:
    """The bodies as ``binary``; with ``unpack``, compressed ones are decompressed.

    Raises :class:`~lakelog.errors.CorruptRecord` for a body that cannot be decompressed.
    """
    if batch.decoder is not None:
        stored = pa.array([each.body for each in batch.decoded], pa.binary())
    elif batch.packed_bodies is not None:
        octets, offsets = map(pa.py_buffer, batch.packed_bodies)
        stored = pa.BinaryArray.from_buffers(pa.binary(), len(batch), [None, offsets, octets])
    else:
        stored = slices(batch.buffer, batch.body_positions, batch.body_lengths)
    packed = (sys_flags(batch) & layout.COMPRESSED).astype(np.bool_) if unpack else None
    if packed is None or not packed.any():
        return stored
    unpacked = pa.array(
        [_unpacked(batch, stored[row], row) for row in np.flatnonzero(packed).tolist()],
        pa.binary(),
    )
    return pc.replace_with_mask(stored, pa.array(packed), unpacked)


def sys_flags(batch: RecordBatch) -> NDArray[np.int32]:
    """The system flags, ``int32``; with a decoder, those of the decoded bodies."""
    if batch.decoder is None:
        return batch.sys_flags
    return np.array([each.sys_flag for each in batch.decoded], np.int32)


def _unpacked(batch: RecordBatch, body: pa.BinaryScalar, row: int) -> bytes:
    try:
        return decompress(body.as_py(), int(sys_flags(batch)[row]))
    except NotUnpacked as error:
        raise CorruptRecord(str(error), offset=int(batch.physical_offsets[row])) from error


def born_hosts(batch: RecordBatch) -> pa.StringArray:
    """``address:port`` of the sender of each record; IPv6 addresses are in brackets."""
    return _hosts(
        batch, batch.starts + layout.AT_BORN_HOST, batch.host_lengths(layout.BORN_HOST_V6)
    )


def store_hosts(batch: RecordBatch) -> pa.StringArray:
    """``address:port`` of the store host of each record."""
    return _hosts(batch, *_store_hosts(batch))


def _store_hosts(batch: RecordBatch) -> tuple[Longs, Longs]:
    lengths = batch.host_lengths(layout.STORE_HOST_V6)
    return batch.body_positions - SUFFIX_BYTES - lengths, lengths


def _hosts(batch: RecordBatch, positions: Longs, lengths: Longs) -> pa.StringArray:
    coded = slices(batch.buffer, positions, lengths).dictionary_encode()
    names = pa.array(map(decode_host, coded.dictionary.to_pylist()), pa.string())
    return pc.take(names, coded.indices)


def message_ids(batch: RecordBatch) -> pa.StringArray:
    """The offset message id of each record: store host and physical offset in hexadecimal.

    The bytes are those of the record, big-endian: 32 digits with an IPv4 host, 56 with IPv6.
    Source: RocketMQ's ``MessageDecoder.createMessageId``.
    """
    positions, lengths = _store_hosts(batch)
    ids, rows = [], []
    for length in (layout.HOST_V4_BYTES, layout.HOST_V6_BYTES):
        these = np.flatnonzero(lengths == length)
        if len(these):
            ids.append(_in_hex(batch, positions[these], batch.starts[these], length))
            rows.append(these)
    if len(ids) == 1:
        return ids[0]
    if not ids:
        return pa.array([], pa.string())
    order = np.argsort(np.concatenate(rows))
    return pa.concat_arrays(ids).take(pa.array(order))


def _in_hex(batch: RecordBatch, hosts: Longs, starts: Longs, length: int) -> pa.StringArray:
    octets = np.empty((len(hosts), length + LONG_BYTES), np.uint8)
    octets[:, :length] = table_of(batch.buffer, hosts, length)
    octets[:, length:] = table_of(batch.buffer, starts + layout.AT_PHYSICAL_OFFSET, LONG_BYTES)
    digits = _DIGITS[octets]
    width = 2 * octets.shape[1]
    offsets = np.arange(0, len(hosts) * width + 1, width, dtype=np.int32)
    return pa.StringArray.from_buffers(len(hosts), pa.py_buffer(offsets), pa.py_buffer(digits))


_COLUMNS: Final[dict[str, tuple[Any, Callable[[_Rows], pa.Array]]]] = {
    "topic": (pa.string(), _topics),
    "queue_id": (pa.int32(), _numbers("queue_ids")),
    "queue_offset": (pa.int64(), _numbers("queue_offsets")),
    "physical_offset": (pa.int64(), _numbers("physical_offsets")),
    "store_size": (pa.int32(), _numbers("sizes")),
    "message_id": (pa.string(), lambda rows: message_ids(rows.batch)),
    "unique_key": (pa.string(), lambda rows: rows.properties.texts(UNIQUE_KEY)),
    "tags": (pa.string(), lambda rows: rows.properties.texts(TAGS)),
    "keys": (pa.list_(pa.string()), lambda rows: rows.properties.words(KEYS)),
    "properties": (pa.map_(pa.string(), pa.string()), lambda rows: rows.properties.maps()),
    "body": (pa.binary(), lambda rows: bodies(rows.batch, rows.decompress)),
    "body_crc": (pa.int32(), lambda rows: pa.array(rows.batch.body_crcs.view(np.int32))),
    "flag": (pa.int32(), _numbers("flags")),
    "sys_flag": (pa.int32(), lambda rows: pa.array(sys_flags(rows.batch))),
    "transaction_type": (pa.string(), _transactions),
    "born_timestamp": (_TIME, lambda rows: _times(rows.batch.born_timestamps_ms)),
    "born_host": (pa.string(), lambda rows: born_hosts(rows.batch)),
    "store_timestamp": (_TIME, lambda rows: _times(rows.batch.store_timestamps_ms)),
    "store_host": (pa.string(), lambda rows: store_hosts(rows.batch)),
    "reconsume_times": (pa.int32(), _numbers("reconsume_times")),
    "prepared_transaction_offset": (pa.int64(), _numbers("prepared_transaction_offsets")),
}
"""The type of each column, and the function that builds it."""

COLUMNS: Final = tuple(_COLUMNS)
"""All column names, in table order."""
