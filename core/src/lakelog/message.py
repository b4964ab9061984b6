"""Message types: a message to be put, columns of many, a column of bodies, and a stored message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import attrs

from lakelog.arguments import WrongValue, wrong_type
from lakelog.format.layout import Transaction, transaction
from lakelog.format.message_id import format_message_id
from lakelog.format.properties import decode_properties
from lakelog.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Body: TypeAlias = bytes | bytearray | memoryview
"""Accepted types of a body: any contiguous bytes."""
PropertiesLike: TypeAlias = Mapping[str, str] | bytes
"""Names and values, or an encoded property string that is stored as it is."""


@attrs.define(slots=True)
class Message:
    """A message to be put.

    :ivar topic: 1 to 255 bytes of UTF-8
    :ivar body: the payload; ``b""`` for a message without one
    :ivar tags: RocketMQ's ``TAGS``, one tag to filter by; without ``||``, and without leading or
        trailing spaces or control characters
    :ivar keys: RocketMQ's ``KEYS``: one key or a sequence of keys, none of which contains a space
    :ivar properties: further properties; or the encoded property string as bytes, which is stored
        byte for byte (``tags`` and ``keys`` must then be ``None``)
    :ivar queue_id: 0 or more; ``None`` lets the store choose round robin
    :ivar flag: 32 bits for the application
    :ivar sys_flag: see ``sysflag``; the bits for IPv6 hosts are set from the hosts
    :ivar born_timestamp_ms: creation time in ms since 1970; ``None`` is now
    :ivar born_host: ``"address:port"`` of the sender (``"[v6]:port"``); ``None`` is the store's
    :ivar store_host: ``"address:port"`` of the storing host; ``None`` is the store's own
    :ivar reconsume_times: how often consumers returned it for another delivery
    :ivar prepared_transaction_offset: physical offset of the prepared message that this one ends
    :ivar wait_store_ok: whether the put waits for the flush strategy
    :ivar delay_ms: time from the put until the message is in its queue, in ms; 3 days at most
    :ivar deliver_at_ms: the time at which it is in its queue, in ms since 1970, instead
    """

    topic: str
    body: Body
    tags: str | None = None
    keys: str | Sequence[str] | None = None
    properties: PropertiesLike | None = None
    queue_id: int | None = None
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int | None = None
    born_host: str | None = None
    store_host: str | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    wait_store_ok: bool = True
    delay_ms: int | None = None
    deliver_at_ms: int | None = None


@attrs.frozen(slots=True, eq=False)
class MessageColumns(Sequence[Message]):
    """Many messages of one topic, without an object for each; can be put like a list of messages.

    Fields are those of :class:`Message`. ``queue_ids``, ``tags`` and ``keys`` are one value for all
    messages, or a sequence with one value per body; for ``keys``, each may again be a sequence. All
    other fields are one value for all. There is no time of delivery.

    Raises ``ValueError`` if the length of such a sequence differs from that of ``bodies``, and
    ``TypeError`` if a value is not a sequence.
    """

    topic: str
    bodies: Sequence[Body]
    queue_ids: int | Sequence[int | None] | None = None
    tags: str | Sequence[str | None] | None = None
    keys: str | Sequence[str | Sequence[str] | None] | None = None
    properties: PropertiesLike | None = None
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int | None = None
    born_host: str | None = None
    store_host: str | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    wait_store_ok: bool = True

    def __attrs_post_init__(self) -> None:
        """Check the lengths."""
        if not _is_column(self.bodies):
            raise wrong_type("bodies", self.bodies, "a list of bytes, or an Arrow array")
        for name in ("queue_ids", "tags", "keys"):
            value = getattr(self, name)
            if is_shared(value):
                continue
            if not _is_column(value):
                raise wrong_type(name, value, "one value for all, or a list of one per body")
            if len(value) != len(self.bodies):
                raise WrongValue(f"{name} has {len(value)} entries for {len(self.bodies)} bodies")

    def __len__(self) -> int:
        return len(self.bodies)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> MessageColumns: ...

    def __getitem__(self, index: int | slice) -> Message | MessageColumns:
        """One message, or the columns of a slice."""
        queue_id, tags, keys = (
            _taken(each, index) for each in (self.queue_ids, self.tags, self.keys)
        )
        if isinstance(index, slice):
            return attrs.evolve(
                self, bodies=self.bodies[index], queue_ids=queue_id, tags=tags, keys=keys
            )
        return Message(
            self.topic, self.bodies[index], tags, keys, self.properties, queue_id,
            self.flag, self.sys_flag, self.born_timestamp_ms, self.born_host, self.store_host,
            self.reconsume_times, self.prepared_transaction_offset, self.wait_store_ok,
        )  # fmt: skip  # in the order of the class, one group per line


def _taken(column: Any, index: int | slice) -> Any:
    return column if is_shared(column) else column[index]


def _is_column(values: object) -> bool:
    """Whether ``values`` have a length, and are found by number: a list, an Arrow array."""
    kind = type(values)
    is_other = issubclass(kind, str | bytes | Mapping)
    return hasattr(kind, "__len__") and hasattr(kind, "__getitem__") and not is_other


def is_shared(column: object) -> bool:
    """Whether a field of :class:`MessageColumns` holds one value for all messages."""
    return column is None or isinstance(column, int | str)


@attrs.frozen(slots=True)
class StoredMessage:
    """A message as stored in one record of the log; the other fields are those of ``Message``.

    :ivar queue_offset: number of the message in its queue, from 0
    :ivar physical_offset: start of the record, in bytes from the start of the log
    :ivar size: length of the whole record in bytes
    :ivar magic: ``0xDAA320A7`` (V1) or ``0xDAA320AB`` (V2)
    :ivar body: as stored; use :func:`lakelog.format.compression.decompress` to unpack it
    :ivar body_crc: the stated checksum of the stored body, see ``checksum.body_crc``
    :ivar properties_bytes: the property string byte for byte
    :ivar store_timestamp_ms: time of the append, in ms since 1970
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    magic: int
    body: bytes
    body_crc: int
    properties_bytes: bytes
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int

    @property
    def properties(self) -> dict[str, str]:
        """The properties; the last value wins if a name repeats, as in RocketMQ."""
        return decode_properties(self.properties_bytes)

    @property
    def tags(self) -> str | None:
        """The property ``TAGS``."""
        return self.properties.get("TAGS")

    @property
    def keys(self) -> list[str]:
        """The individual keys in property ``KEYS``."""
        return [key for key in self.properties.get("KEYS", "").split(" ") if key]

    @property
    def unique_key(self) -> str | None:
        """The property ``UNIQ_KEY``, which RocketMQ's client sets."""
        return self.properties.get("UNIQ_KEY")

    @property
    def transaction(self) -> Transaction:
        """The role of this record in a transaction."""
        return transaction(self.sys_flag)

    @property
    def message_id(self) -> str:
        """RocketMQ's offset message id: store host and physical offset in hexadecimal."""
        return format_message_id(self.store_host, self.physical_offset)


_OFFSETS = {"binary": "i4", "string": "i4", "large_binary": "i8", "large_string": "i8"}
"""NumPy's type of the offsets in an Arrow array of each type."""


class BodyColumn(Sequence[memoryview]):
    """A column of bodies back to back in one buffer, which is put without copying them first.

    :ivar data: the buffer; it must not change until the put has returned
    :ivar offsets: ``int64``: start of each body in ``data``, in bytes, followed by the end of the
        last

    Raises ``ValueError`` if the offsets decrease or exceed the buffer.
    """

    __slots__ = ("data", "offsets")

    def __init__(self, data: Any, offsets: Any) -> None:
        self.data = memoryview(data).cast("B")
        self.offsets: NDArray[np.int64] = np.asarray(offsets, np.int64)
        at, size_bytes = self.offsets, len(self.data)
        if at.ndim != 1 or not len(at):
            raise ValueError("offsets must be a flat array of numbers, one more than bodies")
        if at[0] < 0 or at[-1] > size_bytes or (at[1:] < at[:-1]).any():
            raise ValueError(f"offsets must ascend from 0 or more to {size_bytes} bytes or less")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> memoryview: ...

    @overload
    def __getitem__(self, index: slice) -> BodyColumn: ...

    def __getitem__(self, index: int | slice) -> memoryview | BodyColumn:
        """One body, or a column of adjacent bodies."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError("only adjacent bodies of one buffer can be selected")
            return BodyColumn(self.data, self.offsets[start : max(start, stop) + 1])
        at = range(len(self))[index]
        return self.data[int(self.offsets[at]) : int(self.offsets[at + 1])]


def body_column(bodies: Any) -> Sequence[Body]:
    """Convert ``bodies`` to the form that :class:`~lakelog.message.MessageColumns` accepts.

    An Arrow array of binaries or strings becomes a :class:`BodyColumn`; anything else is returned
    unchanged.

    Raises ``ValueError`` for an Arrow array of another type, or one that contains nulls.
    """
    if not hasattr(bodies, "buffers"):
        return bodies  # type: ignore[no-any-return]  # a sequence of any type; the put checks each body
    kind = str(bodies.type)
    if kind not in _OFFSETS:
        raise WrongValue(f"the bodies are {kind}; they must be {', '.join(_OFFSETS)}")
    if bodies.null_count:
        raise WrongValue(f"{bodies.null_count} of the bodies are null; fill them first")
    _, offsets, data = bodies.buffers()
    if not len(bodies):
        return BodyColumn(b"", [0])
    all_offsets = np.frombuffer(offsets, _OFFSETS[kind])
    return BodyColumn(data or b"", all_offsets[bodies.offset : bodies.offset + len(bodies) + 1])
