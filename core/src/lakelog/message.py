"""Messages as users see them: one to be put, one that was stored, and what became of a put."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import attrs

from lakelog.sysflag import Transaction, transaction

Body: TypeAlias = bytes | bytearray | memoryview
"""What a body may be: any contiguous run of bytes."""

PropertiesLike: TypeAlias = Mapping[str, str] | bytes
"""Names and values, or an encoded property string that is stored as it is."""


@attrs.define(slots=True)
class Message:
    """A message to be put.

    :ivar topic: 1 to 255 bytes of UTF-8
    :ivar body: the payload
    :ivar tags: RocketMQ's ``TAGS``, one word to filter by
    :ivar keys: RocketMQ's ``KEYS``: one key, or several, none of them with a space
    :ivar properties: further properties; or the whole encoded property string as bytes, which is
        kept byte for byte (``tags`` and ``keys`` must then be ``None``)
    :ivar queue_id: 0 or more; ``None`` lets the store choose round robin
    :ivar flag: 32 bits of the user's own
    :ivar sys_flag: see :mod:`lakelog.sysflag`; the bits for IPv6 hosts are set from the hosts
    :ivar born_timestamp_ms: when the message came to be, in ms since 1970; ``None`` is now
    :ivar born_host: ``"address:port"`` of who sent it (``"[v6]:port"``); ``None`` is the store's
    :ivar store_host: ``"address:port"`` to store it under; ``None`` is the store's own
    :ivar reconsume_times: how often consumers gave it back
    :ivar prepared_transaction_offset: physical offset of the prepared message it ends
    :ivar wait_store_ok: whether the put waits for what the flush strategy promises
    """

    topic: str
    body: Body = b""
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


@attrs.frozen(slots=True)
class StoredMessage:
    """A message as one record of the log holds it.

    :ivar size: length of the whole record in bytes
    :ivar body: as stored; :func:`lakelog.compression.decompress` unpacks it
    :ivar properties_bytes: the property string byte for byte
    :ivar magic: ``0xDAA320A7`` (V1) or ``0xDAA320AB`` (V2)
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
        """The properties; of a name that repeats, the last value, as in RocketMQ."""
        from lakelog.properties import decode_properties

        return decode_properties(self.properties_bytes)

    @property
    def tags(self) -> str | None:
        """The property ``TAGS``."""
        return self.properties.get("TAGS")

    @property
    def keys(self) -> list[str]:
        """The pieces of the property ``KEYS``."""
        return [key for key in self.properties.get("KEYS", "").split(" ") if key]

    @property
    def unique_key(self) -> str | None:
        """The property ``UNIQ_KEY``, which RocketMQ's client sets."""
        return self.properties.get("UNIQ_KEY")

    @property
    def transaction(self) -> Transaction:
        """The part this record plays in a transaction."""
        return transaction(self.sys_flag)

    @property
    def message_id(self) -> str:
        """RocketMQ's offset message id: store host and physical offset in hexadecimal."""
        from lakelog.msgid import format_message_id

        return format_message_id(self.store_host, self.physical_offset)
