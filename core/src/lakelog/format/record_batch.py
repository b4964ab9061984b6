"""What a log consists of: runs of records as columns, blanks, and damage with its range.

Fields of fixed width are NumPy arrays, and the rest is decoded on demand.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar, cast

import attrs

from lakelog.accelerate import current
from lakelog.errors import CorruptRecord
from lakelog.format import layout
from lakelog.format.message_id import decode_host, host_bytes
from lakelog.format.properties import decode_properties
from lakelog.format.record import checked_frame, decode
from lakelog.lazy import cached_property, np
from lakelog.message import Body, StoredMessage

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    Ints: TypeAlias = NDArray[np.int64]
    ShortInts: TypeAlias = NDArray[np.int32]
    Starts: TypeAlias = Ints | memoryview

PREFIX: Final = [
    *(("size", ">i4"), ("magic", ">u4"), ("body_crc", ">u4"), ("queue_id", ">i4"), ("flag", ">i4")),
    *(("queue_offset", ">i8"), ("physical_offset", ">i8"), ("sys_flag", ">i4")),
    ("born_timestamp", ">i8"),
]
"""The first 48 bytes of a record."""
SUFFIX: Final = [
    *(("reconsume_times", ">i4"), ("prepared_transaction_offset", ">i8"), ("body_length", ">i4"))
]
"""The :data:`SUFFIX_BYTES` before the body."""
SUFFIX_BYTES: Final = 16
LONG: Final = ">i8"
LONG_BYTES: Final = 8
_LONG: Final = Struct(">q")
_SHORT: Final = ">i2"


def anywhere(buffer: Body, dtype: DTypeLike) -> NDArray[Any]:
    """``buffer`` as an array with one ``dtype`` element for every byte position.

    Its stride is one byte, so that elements overlap: element ``i`` is the field that would start at
    byte ``i``. Indexing it with record starts gathers that field of all records at once.
    """
    one = np.dtype(dtype)
    return np.ndarray((max(0, len(buffer) - one.itemsize + 1),), one, buffer, strides=(1,))


def gather(buffer: Body, dtype: DTypeLike, positions: Ints) -> NDArray[Any]:
    """The ``dtype`` at each of ``positions``.

    Fields are copied as opaque bytes. NumPy would otherwise copy field by field, which takes ten
    times as long.
    """
    one = np.dtype(dtype)
    return anywhere(buffer, (np.void, one.itemsize))[positions].view(one)


Decoder: TypeAlias = Callable[[Sequence[StoredMessage]], Sequence[StoredMessage]]
"""Converts stored messages to messages with their original bodies, in order."""
_LONGS = (
    *("starts", "queue_offsets", "physical_offsets", "born_timestamps_ms", "store_timestamps_ms"),
    *("prepared_transaction_offsets", "_store_times_at", "body_positions", "body_lengths"),
    *("topic_positions", "topic_lengths", "property_positions", "property_lengths"),
)
_INTS = ("sizes", "magics", "body_crcs", "queue_ids", "flags", "sys_flags", "reconsume_times")
_UNSIGNED = ("magics", "body_crcs")
_BYTES = 8 * len(_LONGS) + 4 * len(_INTS)

_OF_THE_BUFFER = frozenset(
    {"buffer", "base_offset", "octets", "decoder", "packed_bodies", "raw_starts", "_columns"}
)
"""Attributes that are not one element per record."""
Value = TypeVar("Value")


def _column(compute: Callable[[Any], Value]) -> cached_property[Value]:
    """A cached column that an accelerator may have filled: one of ``_LONGS`` and ``_INTS``.

    ``cached_property`` returns a value that ``_unpack`` has stored, and ignores the ``None`` here.
    """

    @wraps(compute)
    def value(batch: RecordBatch) -> Value:
        return cast("Value", None) if batch._unpack() else compute(batch)

    return cached_property(value)


def _field(part: str, name: str, number: str) -> cached_property[NDArray[Any]]:
    """A column of the field ``name`` in ``_prefix`` or ``_suffix``, in the machine's byte order."""
    return _column(lambda batch: getattr(batch, part)[name].astype(number))


class RecordBatch:
    """Consecutive records of the log.

    Columns are arrays with one element per record, in the machine's byte order.

    :ivar buffer: the bytes that contain the records; stays valid as long as the batch is held
    :ivar base_offset: physical offset of the first byte of ``buffer``
    :ivar raw_starts: ``starts``, or a view of the same numbers, for compiled code
    :ivar decoder: restores the original bodies if an append callback changed them. Columns hold the
        stored values; messages and Arrow hold the restored ones.
    :ivar packed_bodies: the bodies as stored, back to back, and ``int32`` the start of each and the
        end of the last; ``None`` if an accelerator has not copied them
    :ivar sizes: ``int32``: length of each record in bytes
    :ivar magics: ``uint32``: magic number, which distinguishes V1 from V2
    :ivar body_crcs: ``uint32``: stated checksum of the body
    :ivar queue_ids: ``int32``
    :ivar flags: ``int32``: the user's flag
    :ivar queue_offsets: ``int64``: offset in the queue
    :ivar physical_offsets: ``int64``: physical offset in bytes, as stated by the record
    :ivar sys_flags: ``int32``: see :mod:`lakelog.format.layout`
    :ivar born_timestamps_ms: ``int64``: ms since 1970
    :ivar reconsume_times: ``int32``
    :ivar prepared_transaction_offsets: ``int64``: physical offset of the prepared record that this
        record ends, or 0
    :ivar body_lengths: ``int64``: bytes of each body
    """

    def __init__(
        self, buffer: memoryview, base_offset: int, starts: Starts, decoder: Decoder | None = None
    ) -> None:
        self.buffer = buffer
        self.base_offset = base_offset
        self.raw_starts = starts
        self.decoder = decoder
        self.packed_bodies: tuple[memoryview, memoryview] | None = None
        self._columns: memoryview | None = None

    @classmethod
    def of_columns(
        cls,
        buffer: memoryview,
        base_offset: int,
        columns: memoryview,
        decoder: Decoder | None = None,
    ) -> RecordBatch:
        """Create a batch from columns that an accelerator filled.

        :param columns: in the format of ``Accelerator.read_run``
        """
        batch = cls(buffer, base_offset, columns[: len(columns) // _BYTES * 8].cast("q"), decoder)
        batch._columns = columns
        return batch

    def _unpack(self) -> bool:
        """Make arrays of the columns that an accelerator filled; returns ``False`` without any.

        The first use of a column calls it.
        """
        columns, self._columns = self._columns, None
        if columns is None:
            return False
        count, known = len(self), vars(self)
        longs = np.frombuffer(columns, np.int64, len(_LONGS) * count).reshape(len(_LONGS), count)
        ints = np.frombuffer(columns, np.int32, len(_INTS) * count, longs.nbytes)
        known.update(zip(_LONGS, longs, strict=True))
        known.update(zip(_INTS, ints.reshape(len(_INTS), count), strict=True))
        known.update((name, known[name].view(np.uint32)) for name in _UNSIGNED)
        return True

    def __len__(self) -> int:
        return len(self.raw_starts)

    def head(self, at: int) -> tuple[int, int, int]:
        """Start in ``buffer``, size in bytes and store time in ms of one record, without NumPy."""
        start = int(self.raw_starts[at])
        size, *_, sys_flag, _ = layout.PREFIX.unpack_from(self.buffer, start)
        time_at = start + layout.AT_BORN_HOST + host_bytes(bool(sys_flag & layout.BORN_HOST_V6))
        return start, size, _LONG.unpack_from(self.buffer, time_at)[0]

    def __getitem__(self, part: slice) -> RecordBatch:
        """A range of the records; columns that are already computed are sliced, not recomputed."""
        self._unpack()
        some = self.take(part)
        known = vars(self).items()
        vars(some).update({name: col[part] for name, col in known if name not in _OF_THE_BUFFER})
        return some

    def take(self, these: slice | NDArray[Any]) -> RecordBatch:
        """A selection of the records, in any order, by their indices or by a flag for each."""
        return RecordBatch(self.buffer, self.base_offset, self.starts[these], self.decoder)

    # --- fields of fixed width ---

    @cached_property
    def _prefix(self) -> NDArray[Any]:
        return gather(self.buffer, PREFIX, self.starts)

    @cached_property
    def _suffix(self) -> NDArray[Any]:
        return gather(self.buffer, SUFFIX, self.body_positions - SUFFIX_BYTES)

    @_column
    def starts(self) -> Ints:
        """``int64``: where each record starts in ``buffer``."""
        return np.asarray(self.raw_starts)

    sizes: cached_property[ShortInts] = _field("_prefix", "size", "int32")
    magics: cached_property[NDArray[np.uint32]] = _field("_prefix", "magic", "uint32")
    body_crcs: cached_property[NDArray[np.uint32]] = _field("_prefix", "body_crc", "uint32")
    queue_ids: cached_property[ShortInts] = _field("_prefix", "queue_id", "int32")
    flags: cached_property[ShortInts] = _field("_prefix", "flag", "int32")
    queue_offsets: cached_property[Ints] = _field("_prefix", "queue_offset", "int64")
    physical_offsets: cached_property[Ints] = _field("_prefix", "physical_offset", "int64")
    sys_flags: cached_property[ShortInts] = _field("_prefix", "sys_flag", "int32")
    born_timestamps_ms: cached_property[Ints] = _field("_prefix", "born_timestamp", "int64")
    reconsume_times: cached_property[ShortInts] = _field("_suffix", "reconsume_times", "int32")
    prepared_transaction_offsets: cached_property[Ints] = _field(
        "_suffix", "prepared_transaction_offset", "int64"
    )
    body_lengths: cached_property[Ints] = _field("_suffix", "body_length", "int64")

    @cached_property
    def ends(self) -> Ints:
        """``int64``: end of each record in ``buffer``, exclusive."""
        return self.starts + self.sizes

    @_column
    def store_timestamps_ms(self) -> Ints:
        """``int64``: ms since 1970."""
        return anywhere(self.buffer, LONG)[self._store_times_at].astype(np.int64)

    # --- positions of the parts of varying length ---

    def host_lengths(self, v6: int) -> Ints:
        """Length in bytes of each host, given the flag bit ``v6`` for that host."""
        is_v6 = (self.sys_flags & v6).astype(np.bool_)
        return np.where(is_v6, layout.HOST_V6_BYTES, layout.HOST_V4_BYTES).astype(
            np.int64, copy=False
        )

    @_column
    def _store_times_at(self) -> Ints:
        return self.starts + layout.AT_BORN_HOST + self.host_lengths(layout.BORN_HOST_V6)

    @_column
    def body_positions(self) -> Ints:
        """``int64``: first byte of each body in ``buffer``."""
        store_host_at = self._store_times_at + LONG_BYTES
        return store_host_at + self.host_lengths(layout.STORE_HOST_V6) + SUFFIX_BYTES

    @cached_property
    def octets(self) -> NDArray[np.uint8]:
        """``uint8``: all of ``buffer``."""
        return np.frombuffer(self.buffer, np.uint8)

    @cached_property
    def _v2(self) -> NDArray[np.bool_]:
        return np.equal(self.magics, layout.MAGIC_V2)

    @_column
    def topic_positions(self) -> Ints:
        """``int64``: first byte of each topic in ``buffer``."""
        return self.body_positions + self.body_lengths + 1 + self._v2

    @_column
    def topic_lengths(self) -> Ints:
        """``int64``: bytes of each topic."""
        low = self.octets[self.topic_positions - 1].astype(np.int64)
        if not self._v2.any():
            return low
        return low + self.octets[self.topic_positions - 2].astype(np.int64) * self._v2 * 256

    @_column
    def property_positions(self) -> Ints:
        """``int64``: first byte of each property string in ``buffer``."""
        return self.topic_positions + self.topic_lengths + 2

    @_column
    def property_lengths(self) -> Ints:
        """``int64``: bytes of each property string."""
        return anywhere(self.buffer, _SHORT)[self.property_positions - 2].astype(np.int64)

    # --- parts of varying length ---

    def _slices(self, positions: Ints, lengths: Ints) -> list[memoryview]:
        view = self.buffer
        return [
            view[at:end]
            for at, end in zip(positions.tolist(), (positions + lengths).tolist(), strict=True)
        ]

    @cached_property
    def topics(self) -> list[str]:
        """Topics."""
        slices = self._slices(self.topic_positions, self.topic_lengths)
        return [str(each, "utf-8") for each in slices]

    @cached_property
    def bodies(self) -> list[memoryview]:
        """Bodies as stored, without a copy."""
        return self._slices(self.body_positions, self.body_lengths)

    @cached_property
    def property_strings(self) -> list[bytes]:
        """Property strings byte for byte."""
        return [bytes(raw) for raw in self._slices(self.property_positions, self.property_lengths)]

    @cached_property
    def properties(self) -> list[dict[str, str]]:
        """Properties; the last value wins if a name repeats."""
        return [decode_properties(each) for each in self.property_strings]

    @cached_property
    def tags(self) -> list[str | None]:
        """The property ``TAGS`` of each record."""
        return [each.get("TAGS") for each in self.properties]

    @cached_property
    def keys(self) -> list[str | None]:
        """The property ``KEYS`` of each record."""
        return [each.get("KEYS") for each in self.properties]

    def hosts(self) -> list[tuple[str, str]]:
        """Born host and store host of each record."""
        times = self._store_times_at
        born = self._slices(
            self.starts + layout.AT_BORN_HOST, times - self.starts - layout.AT_BORN_HOST
        )
        ends = self.body_positions - SUFFIX_BYTES
        store = self._slices(times + LONG_BYTES, ends - times - LONG_BYTES)
        return [
            (decode_host(bytes(a)), decode_host(bytes(b))) for a, b in zip(born, store, strict=True)
        ]

    def record(self, at: int) -> memoryview:
        """The bytes of one whole record."""
        start, size, _ = self.head(at)
        return self.buffer[start : start + size]

    def message(self, at: int) -> StoredMessage:
        """One record as a message; it was checked when the batch was decoded.

        Raises :class:`~lakelog.errors.DecodeFailed` if ``decoder`` cannot restore the
        original body.
        """
        stored = self._stored(at)
        return stored if self.decoder is None else self.decoder((stored,))[0]

    def _stored(self, at: int) -> StoredMessage:
        return decode(self.buffer, int(self.raw_starts[at]), verify=False)

    @cached_property
    def decoded(self) -> Sequence[StoredMessage]:
        """All messages, decoded at once; raises as :meth:`message`."""
        accelerator, stored = current(), None
        if accelerator is not None:
            stored = accelerator.messages(self.buffer, self.starts, self.sizes, None, verify=False)
        if stored is None:
            stored = [self._stored(at) for at in range(len(self))]
        return stored if self.decoder is None else self.decoder(stored)

    @property
    def end_offset(self) -> int:
        """Physical offset of the end of the last record."""
        if not len(self):
            return self.base_offset
        start, size, _ = self.head(-1)
        return self.base_offset + start + size


MAX_RECORDS: Final = 1 << 16
"""Default limit on the number of records in a batch."""


def decode_run(
    data: Body,
    base_offset: int = 0,
    *,
    verify: bool = True,
    sealed: bool = False,
    max_records: int = MAX_RECORDS,
) -> RecordBatch:
    """The records that stand back to back at the start of ``data``.

    Stops without an error before the first incomplete record, or the first one that fails a check.
    Compare ``end_offset`` with the expected end.

    :param base_offset: physical offset of ``data[0]``; a record that states another offset fails
    :param verify: whether checksums are computed; lengths and offsets are always checked
    :param sealed: whether a record checksum is required (RocketMQ's ``forceVerifyPropCRC``)
    """
    view = memoryview(data).cast("B")
    accelerator = current()
    if accelerator is not None:
        columns = accelerator.read_run(
            view, base_offset, verify=verify, sealed=sealed, max_records=max_records
        )
        if columns is not None:
            return RecordBatch.of_columns(view, base_offset, columns)
    starts = array("q")
    at = 0
    with suppress(CorruptRecord):
        while len(starts) < max_records:
            place = at, len(view), base_offset + at
            frame = checked_frame(view, *place, verify=verify, sealed=sealed)
            starts.append(at)
            at += frame.size
    return RecordBatch(view, base_offset, memoryview(starts))


class Blank(NamedTuple):
    """The record that fills the rest of a segment: ``size`` bytes at ``offset``."""

    offset: int
    size: int

    @property
    def end_offset(self) -> int:
        """Offset behind the last byte."""
        return self.offset + self.size


@attrs.frozen
class Damage:
    """A range of bytes that is not a whole record.

    :ivar offset: offset of the first byte, in bytes from the start of the log
    :ivar end_offset: offset behind the last byte; a record, a segment or nothing follows
    :ivar error: the failed check of the first record in the range
    :ivar path: the segment file, if known
    :ivar unproven: whether it contains whole records not proved to belong to the log
    :ivar head: its first bytes, to detect a change
    :ivar to_fill: whether the recovery that noted it planned to fill it with records
    """

    offset: int
    end_offset: int
    error: CorruptRecord
    path: Path | None = None
    unproven: bool = False
    head: bytes = attrs.field(default=b"", repr=False)
    to_fill: bool = False

    def is_at(self, data: memoryview) -> bool:
        """Whether ``data`` still begins with the same bytes."""
        return bool(self.head) and bytes(data[: len(self.head)]) == self.head

    def __str__(self) -> str:
        """The problem and its place."""
        place = f"{self.path}: " if self.path else ""
        return f"{place}{self.error}; skipped {self.offset} to {self.end_offset}"


Piece: TypeAlias = "RecordBatch | Blank | Damage"
