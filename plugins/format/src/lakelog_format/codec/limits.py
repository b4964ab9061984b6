"""Size limits and value ranges of a record, checked before anything is encoded."""

from __future__ import annotations

import attrs

from lakelog_format.arguments import whole
from lakelog_format.errors import IllegalMessage
from lakelog_format.fields.layout import BLANK_MIN_BYTES, MAX_PROPERTIES_BYTES, MAX_TOPIC_BYTES
from lakelog_format.message import Body
from lakelog_format.status import PutStatus

RECORD_OVERHEAD_BYTES = 64 << 10
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
                max_message_size_bytes + RECORD_OVERHEAD_BYTES,
                segment_size_bytes - BLANK_MIN_BYTES,
            ),
        )

    def check(self, body_bytes: int, properties_bytes: int, record_bytes: int) -> None:
        """Raise :class:`~lakelog_format.errors.IllegalMessage` if one of the three is too large."""
        if body_bytes > self.body_bytes:
            raise _too_large("body", body_bytes, self.body_bytes)
        if properties_bytes > MAX_PROPERTIES_BYTES:
            raise IllegalMessage(
                f"properties take {properties_bytes} bytes, the limit is {MAX_PROPERTIES_BYTES}",
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

    Raises :class:`~lakelog_format.errors.IllegalMessage`.
    """
    try:
        data = topic.encode()
    except (UnicodeEncodeError, AttributeError):
        raise illegal(f"topic {topic!r} is not a str that UTF-8 can encode") from None
    if not 0 < len(data) <= MAX_TOPIC_BYTES:
        raise illegal(f"topic {topic!r} takes {len(data)} bytes, not 1 to {MAX_TOPIC_BYTES}")
    if topic in (".", "..") or any(ord(char) < ord(" ") or char == "/" for char in topic):
        raise illegal(f"topic {topic!r} cannot name a directory: it holds '/', NUL or the like")
    return data


def as_body(body: object) -> Body:
    """``body`` as contiguous bytes; raises :class:`~lakelog_format.errors.IllegalMessage`."""
    if isinstance(body, bytes | bytearray):
        return body
    try:
        return memoryview(body).cast("B")  # type: ignore[arg-type]  # the except clause handles other types
    except (TypeError, ValueError, BufferError):
        kind = type(body).__name__
        raise illegal(f"the body is {kind}, not bytes; encode it first") from None
