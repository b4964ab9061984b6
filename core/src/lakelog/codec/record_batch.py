"""A run of records as columns: NumPy arrays for fields of fixed width, the rest on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from lakelog.accelerate import current
from lakelog.codec.decode import decode
from lakelog.format.hosts import decode_host
from lakelog.format.layout import AT_BORN_HOST, HOST_V4_BYTES, HOST_V6_BYTES, MAGIC_V2
from lakelog.format.properties import decode_properties
from lakelog.format.sysflag import BORN_HOST_V6, STORE_HOST_V6
from lakelog.message import Body, StoredMessage
from lakelog.runtime.cached import cached_property

PREFIX = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("body_crc", ">u4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
    ]
)
"""The first 48 bytes of a record."""

SUFFIX = np.dtype(
    [
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_length", ">i4"),
    ]
)
"""The 16 bytes before the body."""

LONG = np.dtype(">i8")
SHORT = np.dtype(">i2")


def anywhere(buffer: Body, dtype: np.dtype[Any]) -> NDArray[Any]:
    """``buffer`` as an array with one ``dtype`` element for every byte position.

    Its stride is one byte, so that elements overlap: element ``i`` is the field that would start at
    byte ``i``. Indexing it with record starts gathers that field of all records at once.
    """
    length = max(0, len(buffer) - dtype.itemsize + 1)
    return np.ndarray((length,), dtype, buffer, strides=(1,))


def gather(buffer: Body, dtype: np.dtype[Any], positions: NDArray[np.int64]) -> NDArray[Any]:
    """The ``dtype`` at each of ``positions``.

    Fields are copied as opaque bytes. NumPy would otherwise copy field by field, which takes ten
    times as long.
    """
    whole = np.dtype((np.void, dtype.itemsize))
    return anywhere(buffer, whole)[positions].view(dtype)


Ints = NDArray[np.int64]
ShortInts = NDArray[np.int32]
Fields = NDArray[Any]
Decoder: TypeAlias = Callable[[Sequence[StoredMessage]], Sequence[StoredMessage]]
"""Converts stored messages to messages with their original bodies, in order."""
_HOST_BYTES = np.array([HOST_V4_BYTES, HOST_V6_BYTES], np.int64)
_LONGS = (
    "starts",
    "queue_offsets",
    "physical_offsets",
    "born_timestamps_ms",
    "store_timestamps_ms",
    "prepared_transaction_offsets",
    "_store_times_at",
    "body_positions",
    "body_lengths",
    "topic_positions",
    "topic_lengths",
    "property_positions",
    "property_lengths",
)
_INTS = ("sizes", "magics", "body_crcs", "queue_ids", "flags", "sys_flags", "reconsume_times")
_UNSIGNED = ("magics", "body_crcs")
_BYTES = 8 * len(_LONGS) + 4 * len(_INTS)
_OF_THE_BUFFER = frozenset({"buffer", "base_offset", "octets", "decoder"})
"""Attributes that are not one element per record."""


Number = TypeVar("Number", bound=np.generic)


def _field(part: str, name: str, number: type[Number]) -> cached_property[NDArray[Number]]:
    """A column of the field ``name`` in ``_prefix`` or ``_suffix``, in the machine's byte order."""

    def column(batch: RecordBatch) -> NDArray[Number]:
        fields: Fields = getattr(batch, part)
        return fields[name].astype(number)

    return cached_property(column)


class RecordBatch:
    """Consecutive records of the log.

    Columns are arrays with one element per record, in the machine's byte order.

    :ivar buffer: the bytes that contain the records; stays valid as long as the batch is held
    :ivar base_offset: physical offset of the first byte of ``buffer``
    :ivar starts: ``int64``, where each record starts in ``buffer``
    :ivar decoder: restores the original bodies if an append callback changed them. Columns hold the
        stored values; messages and Arrow hold the restored ones.
    :ivar sizes: ``int32``: length of each record in bytes
    :ivar magics: ``uint32``: magic number, which distinguishes V1 from V2
    :ivar body_crcs: ``uint32``: stated checksum of the body
    :ivar queue_ids: ``int32``
    :ivar flags: ``int32``: the user's flag
    :ivar queue_offsets: ``int64``: offset in the queue
    :ivar physical_offsets: ``int64``: physical offset in bytes, as stated by the record
    :ivar sys_flags: ``int32``: see :mod:`lakelog.format.sysflag`
    :ivar born_timestamps_ms: ``int64``: ms since 1970
    :ivar reconsume_times: ``int32``
    :ivar prepared_transaction_offsets: ``int64``: physical offset of the prepared record that this
        record ends, or 0
    :ivar body_lengths: ``int64``: bytes of each body
    """

    def __init__(
        self, buffer: memoryview, base_offset: int, starts: Ints, decoder: Decoder | None = None
    ) -> None:
        self.buffer = buffer
        self.base_offset = base_offset
        self.starts = starts
        self.decoder = decoder

    @classmethod
    def of_columns(
        cls,
        buffer: memoryview,
        base_offset: int,
        columns: memoryview,
        decoder: Decoder | None = None,
    ) -> RecordBatch:
        """Create a batch from columns that an accelerator filled.

        :param columns: in the format of :meth:`lakelog.accelerate.Accelerator.read_run`
        """
        count = len(columns) // _BYTES
        longs = np.frombuffer(columns, np.int64, len(_LONGS) * count).reshape(len(_LONGS), count)
        ints = np.frombuffer(columns, np.int32, len(_INTS) * count, longs.nbytes)
        batch = cls(buffer, base_offset, longs[0], decoder)
        known = vars(batch)
        known.update(zip(_LONGS, longs, strict=True))
        known.update(zip(_INTS, ints.reshape(len(_INTS), count), strict=True))
        known.update((name, known[name].view(np.uint32)) for name in _UNSIGNED)
        return batch

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, part: slice) -> RecordBatch:
        """A range of the records; columns that are already computed are sliced, not recomputed."""
        some = self.take(part)
        known = vars(self).items()
        vars(some).update({name: col[part] for name, col in known if name not in _OF_THE_BUFFER})
        return some

    def take(self, these: slice | NDArray[Any]) -> RecordBatch:
        """A selection of the records, in any order, by their indices or by a flag for each."""
        return RecordBatch(self.buffer, self.base_offset, self.starts[these], self.decoder)

    # --- fields of fixed width ---

    @cached_property
    def _prefix(self) -> Fields:
        return gather(self.buffer, PREFIX, self.starts)

    @cached_property
    def _suffix(self) -> Fields:
        return gather(self.buffer, SUFFIX, self.body_positions - SUFFIX.itemsize)

    sizes = _field("_prefix", "size", np.int32)
    magics = _field("_prefix", "magic", np.uint32)
    body_crcs = _field("_prefix", "body_crc", np.uint32)
    queue_ids = _field("_prefix", "queue_id", np.int32)
    flags = _field("_prefix", "flag", np.int32)
    queue_offsets = _field("_prefix", "queue_offset", np.int64)
    physical_offsets = _field("_prefix", "physical_offset", np.int64)
    sys_flags = _field("_prefix", "sys_flag", np.int32)
    born_timestamps_ms = _field("_prefix", "born_timestamp", np.int64)
    reconsume_times = _field("_suffix", "reconsume_times", np.int32)
    prepared_transaction_offsets = _field("_suffix", "prepared_transaction_offset", np.int64)
    body_lengths = _field("_suffix", "body_length", np.int64)

    @cached_property
    def ends(self) -> Ints:
        """``int64``: end of each record in ``buffer``, exclusive."""
        return self.starts + self.sizes

    @cached_property
    def store_timestamps_ms(self) -> Ints:
        """``int64``: ms since 1970."""
        return anywhere(self.buffer, LONG)[self._store_times_at].astype(np.int64)

    # --- positions of the parts of varying length ---

    def _host_bytes(self, v6: int) -> Ints:
        """Length in bytes of each host, given the flag bit ``v6`` for that host."""
        return _HOST_BYTES[(self.sys_flags & v6).astype(np.bool_).view(np.int8)]

    @cached_property
    def _store_times_at(self) -> Ints:
        return self.starts + AT_BORN_HOST + self._host_bytes(BORN_HOST_V6)

    @cached_property
    def body_positions(self) -> Ints:
        """``int64``: first byte of each body in ``buffer``."""
        store_host_at = self._store_times_at + LONG.itemsize
        return store_host_at + self._host_bytes(STORE_HOST_V6) + SUFFIX.itemsize

    @cached_property
    def octets(self) -> NDArray[np.uint8]:
        """``uint8``: all of ``buffer``."""
        return np.frombuffer(self.buffer, np.uint8)

    @cached_property
    def _v2(self) -> NDArray[np.bool_]:
        return np.equal(self.magics, MAGIC_V2)

    @cached_property
    def topic_positions(self) -> Ints:
        """``int64``: first byte of each topic in ``buffer``."""
        return self.body_positions + self.body_lengths + 1 + self._v2

    @cached_property
    def topic_lengths(self) -> Ints:
        """``int64``: bytes of each topic."""
        low = self.octets[self.topic_positions - 1].astype(np.int64)
        if not self._v2.any():
            return low
        return low + self.octets[self.topic_positions - 2].astype(np.int64) * self._v2 * 256

    @cached_property
    def property_positions(self) -> Ints:
        """``int64``: first byte of each property string in ``buffer``."""
        return self.topic_positions + self.topic_lengths + 2

    @cached_property
    def property_lengths(self) -> Ints:
        """``int64``: bytes of each property string."""
        return anywhere(self.buffer, SHORT)[self.property_positions - 2].astype(np.int64)

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
        born = self._slices(self.starts + AT_BORN_HOST, times - self.starts - AT_BORN_HOST)
        ends = self.body_positions - SUFFIX.itemsize
        store = self._slices(times + LONG.itemsize, ends - times - LONG.itemsize)
        return [
            (decode_host(bytes(a)), decode_host(bytes(b))) for a, b in zip(born, store, strict=True)
        ]

    def record(self, at: int) -> memoryview:
        """The bytes of one whole record."""
        start = int(self.starts[at])
        return self.buffer[start : start + int(self.sizes[at])]

    def message(self, at: int) -> StoredMessage:
        """One record as a message; it was checked when the batch was decoded.

        Raises :class:`~lakelog.errors.DecodeFailed` if the original body cannot be restored.
        """
        stored = self._stored(at)
        return stored if self.decoder is None else self.decoder((stored,))[0]

    def _stored(self, at: int) -> StoredMessage:
        return decode(self.record(at), verify=False)

    @cached_property
    def decoded(self) -> Sequence[StoredMessage]:
        """All messages, decoded at once; raises :class:`~lakelog.errors.DecodeFailed`."""
        accelerator, stored = current(), None
        if accelerator is not None:
            stored = accelerator.messages(self.buffer, self.starts, self.sizes, None, verify=False)
        if stored is None:
            stored = [self._stored(at) for at in range(len(self))]
        return stored if self.decoder is None else self.decoder(stored)

    @property
    def end_offset(self) -> int:
        """Physical offset of the end of the last record."""
        if not len(self.starts):
            return self.base_offset
        return self.base_offset + int(self.starts[-1]) + int(self.sizes[-1])
