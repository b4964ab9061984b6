"""What a record can hold: limits of sizes and numbers, topics, and the properties of a message.

Everything is checked before anything is encoded. A property string has tags, keys, then the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from lakelog.arguments import whole
from lakelog.errors import IllegalMessage
from lakelog.format import layout
from lakelog.format.checksum import is_sealed, without_seal
from lakelog.format.properties import KEYS, TAGS, check_tags, encode_properties, join_keys
from lakelog.format.record import SECTOR_BYTES
from lakelog.message import Body, PropertiesLike
from lakelog.results import PutStatus

_RECORD_OVERHEAD_BYTES = 64 << 10
"""How far a record may exceed the largest body, in bytes."""


@attrs.frozen
class Limits:
    """The largest body and the largest record, in bytes."""

    body_bytes: int
    record_bytes: int

    @classmethod
    def of(cls, max_message_size_bytes: int, segment_size_bytes: int) -> Limits:
        """The limits that follow from a setting and from the size of a segment."""
        return cls(
            max_message_size_bytes,
            min(
                max_message_size_bytes + _RECORD_OVERHEAD_BYTES,
                segment_size_bytes - layout.BLANK_MIN_BYTES,
            ),
        )

    def check(self, body_bytes: int, properties_bytes: int, record_bytes: int) -> None:
        """Raise :class:`~lakelog.errors.IllegalMessage` if one of the three is too large."""
        if body_bytes > self.body_bytes:
            raise _too_large("body", body_bytes, self.body_bytes)
        if properties_bytes > (limit := layout.MAX_PROPERTIES_BYTES):
            raise IllegalMessage(
                f"properties take {properties_bytes} bytes, the limit is {limit}",
                status=PutStatus.PROPERTIES_SIZE_EXCEEDED,
            )
        if record_bytes > self.record_bytes:
            raise _too_large("record", record_bytes, self.record_bytes)


def _too_large(what: str, found: int, limit: int) -> IllegalMessage:
    return IllegalMessage(
        f"the {what} takes {found} bytes; the limit is {limit} "
        "(max_message_size_bytes, and the length of a segment)",
        status=PutStatus.MESSAGE_SIZE_EXCEEDED,
    )


def illegal(what: str) -> IllegalMessage:
    """The error for a message that no record can hold."""
    return IllegalMessage(what, status=PutStatus.MESSAGE_ILLEGAL)


_FIELDS = {
    "queue_id": range(1 << 31),
    "flag": range(-(1 << 31), 1 << 31),
    "sys_flag": range(-(1 << 31), 1 << 31),
    "born_timestamp_ms": range(-(1 << 63), 1 << 63),
    "reconsume_times": range(-(1 << 31), 1 << 31),
    "prepared_transaction_offset": range(-(1 << 63), 1 << 63),
}
"""Valid range of each numeric field of a message."""
_NONE_ALLOWED = ("queue_id", "born_timestamp_ms")


def misfit(message: object) -> str | None:
    """Describe the first field of ``message`` that is out of range; ``None`` if all are valid."""
    topic = getattr(message, "topic", "")
    if not isinstance(topic, str):
        return f"topic {topic!r:.80} is not a str that UTF-8 can encode"
    for name, fits in _FIELDS.items():
        value = getattr(message, name, 0)
        if value is None and name in _NONE_ALLOWED:
            continue
        try:
            whole(name, value, None)
        except (TypeError, ValueError) as error:
            return str(error)
        if value not in fits:
            return f"{name} is {value}; give a number from {fits[0]} to {fits[-1]}"
    return None


def encode_topic(topic: str) -> bytes:
    """The bytes of a topic.

    A topic names a directory: it must not contain ``/`` or a character below U+0020, and must not
    be ``.`` or ``..``. It takes 1 to 255 bytes.

    Raises :class:`~lakelog.errors.IllegalMessage`.
    """
    try:
        data = topic.encode()
    except (UnicodeEncodeError, AttributeError):
        raise illegal(f"topic {topic!r} is not a str that UTF-8 can encode") from None
    if not 0 < len(data) <= layout.MAX_TOPIC_BYTES:
        raise illegal(f"topic {topic!r} takes {len(data)} bytes, not 1 to {layout.MAX_TOPIC_BYTES}")
    if topic in (".", "..") or any(ord(char) < ord(" ") or char == "/" for char in topic):
        raise illegal(f"topic {topic!r} cannot name a directory: it holds '/', NUL or the like")
    return data


def as_body(body: object) -> Body:
    """``body`` as contiguous bytes; raises :class:`~lakelog.errors.IllegalMessage`."""
    if isinstance(body, bytes | bytearray):
        return body
    try:
        return memoryview(body).cast("B")  # type: ignore[arg-type]  # the except clause handles other types
    except (TypeError, ValueError, BufferError):
        kind = type(body).__name__
        raise illegal(f"the body is {kind}, not bytes; encode it first") from None


Keys = str | Sequence[str] | None


def message_properties(tags: str | None, keys: Keys, properties: PropertiesLike | None) -> bytes:
    """The encoded properties of one message.

    Raises :class:`~lakelog.errors.IllegalMessage` for values that a record cannot hold.
    """
    if properties:
        return _with_more(tags, keys, properties)
    if tags is None and keys is None:
        return b""
    return _encoded(_named(tags, keys))


def _with_more(tags: str | None, keys: Keys, properties: PropertiesLike) -> bytes:
    if isinstance(properties, bytes | bytearray | memoryview):
        return _as_given(tags, keys, bytes(properties))
    try:
        more = dict(properties)
    except (ValueError, TypeError):
        raise illegal(
            f"properties is {properties!r:.80}; give a mapping of names to values, or bytes"
        ) from None
    named = _named(tags, keys)
    for name, value in () if named.keys().isdisjoint(more) else named.items():
        if more.get(name, value) != value:
            field = name.lower()
            raise illegal(
                f"{field} is {value!r}, and properties has {name} {more[name]!r:.80}; give one of "
                "them"
            )
    return _unsealed(_encoded(named | more))


def _encoded(named: dict[str, str]) -> bytes:
    try:
        return encode_properties(named)
    except (ValueError, TypeError) as error:
        raise illegal(str(error)) from None


def _as_given(tags: str | None, keys: Keys, properties: bytes) -> bytes:
    if tags is not None or keys is not None:
        raise illegal("properties given as bytes are kept as they are; put tags and keys into them")
    return _unsealed(properties)


def _unsealed(properties: bytes) -> bytes:
    kept = without_seal(properties)
    if is_sealed(kept):
        raise illegal("the last property would be taken for the record checksum, __CRC32#")
    if kept.endswith(b"\x00") or bytes(SECTOR_BYTES) in kept:
        raise illegal(
            f"properties that end with a zero byte, or hold {SECTOR_BYTES} of them in a row, would "
            "be taken for a lost sector"
        )
    return kept


def _named(tags: str | None, keys: Keys) -> dict[str, str]:
    named = {}
    try:
        if tags is not None:
            named[TAGS] = check_tags(tags)
        if keys is not None:
            named[KEYS] = join_keys(keys)
    except (TypeError, ValueError) as error:
        raise illegal(str(error)) from None
    return named


def ended(properties: bytes) -> bytes:
    """``properties`` with a trailing separator, so that another property can follow."""
    if properties and not properties.endswith(layout.PROPERTY_SEPARATOR):
        return properties + layout.PROPERTY_SEPARATOR
    return properties
