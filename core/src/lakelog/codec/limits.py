"""What a record may hold, checked before anything is encoded."""

from __future__ import annotations

import attrs

from lakelog.errors import IllegalMessage
from lakelog.format.layout import BLANK_MIN_BYTES, MAX_PROPERTIES_BYTES, MAX_TOPIC_BYTES
from lakelog.message import Body
from lakelog.runtime.arguments import whole
from lakelog.status import PutStatus

RECORD_OVERHEAD_BYTES = 64 << 10
"""How much larger than the largest body a record may be."""


@attrs.frozen
class Limits:
    """The largest body and the largest record, in bytes.

    :ivar safe_bytes: a record of at most this length has no part that is too large
    """

    body_bytes: int
    record_bytes: int
    safe_bytes: int = attrs.field(init=False)

    @safe_bytes.default
    def _smallest(self) -> int:
        return min(self.body_bytes, self.record_bytes, MAX_PROPERTIES_BYTES)

    @classmethod
    def of(cls, max_message_size_bytes: int, segment_size_bytes: int) -> Limits:
        """The limits that a setting and the length of a segment put on a record."""
        return cls(
            max_message_size_bytes,
            min(
                max_message_size_bytes + RECORD_OVERHEAD_BYTES,
                segment_size_bytes - BLANK_MIN_BYTES,
            ),
        )

    def check(self, body_bytes: int, properties_bytes: int, record_bytes: int) -> None:
        """Raise :class:`~lakelog.errors.IllegalMessage` if one of the three is too large."""
        if body_bytes > self.body_bytes:
            raise _too_large("body", body_bytes, self.body_bytes)
        if properties_bytes > MAX_PROPERTIES_BYTES:
            raise IllegalMessage(
                f"the properties take {properties_bytes} bytes; {MAX_PROPERTIES_BYTES} is the most",
                status=PutStatus.PROPERTIES_SIZE_EXCEEDED,
            )
        if record_bytes > self.record_bytes:
            raise _too_large("record", record_bytes, self.record_bytes)


def _too_large(what: str, found: int, limit: int) -> IllegalMessage:
    return IllegalMessage(
        f"the {what} takes {found} bytes; {limit} is the most "
        "(max_message_size_bytes, and the length of a segment)",
        status=PutStatus.MESSAGE_SIZE_EXCEEDED,
    )


def illegal(what: str) -> IllegalMessage:
    """The error for a message that makes no record at all."""
    return IllegalMessage(what, status=PutStatus.MESSAGE_ILLEGAL)


_FIELDS = {
    "queue_id": range(1 << 31),
    "flag": range(-(1 << 31), 1 << 31),
    "sys_flag": range(-(1 << 31), 1 << 31),
    "born_timestamp_ms": range(-(1 << 63), 1 << 63),
    "reconsume_times": range(-(1 << 31), 1 << 31),
    "prepared_transaction_offset": range(-(1 << 63), 1 << 63),
}
"""What the numbers of a message can be."""
_NONE_ALLOWED = ("queue_id", "born_timestamp_ms")


def misfit(message: object) -> str | None:
    """Which number of ``message`` does not fit its field, and what it should be."""
    topic = getattr(message, "topic", "")
    if not isinstance(topic, str):
        return f"topic {topic!r:.80} is no text that UTF-8 can hold"
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

    A topic names a directory, so it holds no ``/`` and no NUL, and is not ``.`` or ``..``.
    """
    try:
        data = topic.encode()
    except (UnicodeEncodeError, AttributeError):
        raise illegal(f"topic {topic!r} is no text that UTF-8 can hold") from None
    if not 0 < len(data) <= MAX_TOPIC_BYTES:
        raise illegal(f"topic {topic!r} takes {len(data)} bytes; 1 to {MAX_TOPIC_BYTES} can be")
    if topic in (".", "..") or any(ord(char) < ord(" ") or char == "/" for char in topic):
        raise illegal(f"topic {topic!r} cannot name a directory: it holds '/', NUL or the like")
    return data


def as_body(body: object) -> Body:
    """``body`` as a run of bytes."""
    if isinstance(body, bytes | bytearray):
        return body
    try:
        return memoryview(body).cast("B")  # type: ignore[arg-type]  # the error below is for these
    except (TypeError, ValueError, BufferError):
        kind = type(body).__name__
        raise illegal(f"the body is {kind}, not bytes; encode it first") from None
