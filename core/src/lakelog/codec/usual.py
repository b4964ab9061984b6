"""One record of the usual shape to a message, in as few steps as Python can.

Usual are V1 records from and to IPv4 hosts that have no record checksum, and no zero in topic or
properties. Everything else is left to :mod:`lakelog.codec.decode`, and so is saying what is wrong
with a record.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from lakelog.checksum import CRC31_MASK, crc32
from lakelog.codec.recordcrc import START
from lakelog.hosts import decode_host
from lakelog.layout import HEAD_V4, MAGIC_V1, RECORD_CRC_BYTES
from lakelog.message import StoredMessage
from lakelog.sysflag import BORN_HOST_V6, STORE_HOST_V6

_SHORT: Final = Struct(">h")
_ANY_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
_BODY_AT: Final = HEAD_V4.size
_SEAL_ENDS: Final = len(START) - RECORD_CRC_BYTES


def decode_usual(record: bytes, offset: int, *, verify: bool = True) -> StoredMessage | None:
    """The message of a record; ``None`` if it is not usual, or not whole.

    :param record: as many bytes as it must have, ``RECORD_MIN_BYTES`` at least
    :param offset: where it must stand in the log
    :param verify: whether checksums are computed; lengths and places are always checked
    """
    (
        size, magic, crc, queue_id, flag, queue_offset, place, sys_flag, born, born_host, stored,
        store_host, reconsume_times, prepared, body_length,
    ) = HEAD_V4.unpack_from(record)  # fmt: skip  # in the order of the format
    end = len(record)
    topic_at = _BODY_AT + body_length + 1
    if size != end or place != offset or magic != MAGIC_V1 or sys_flag & _ANY_V6:
        return None
    if body_length < 0 or topic_at > end - _SHORT.size:
        return None
    properties_at = topic_at + record[topic_at - 1] + _SHORT.size
    if (
        properties_at > end
        or _SHORT.unpack_from(record, properties_at - 2)[0] != end - properties_at
    ):
        return None
    body, properties = record[_BODY_AT : topic_at - 1], record[properties_at:]
    text = record[topic_at : properties_at - _SHORT.size]
    if verify and not _holds(body, crc, text, properties):
        return None
    try:
        topic = text.decode()
    except UnicodeDecodeError:
        return None
    return StoredMessage(
        topic, queue_id, queue_offset, place, size, magic, body, crc, properties, flag, sys_flag,
        born, decode_host(born_host), stored, decode_host(store_host), reconsume_times, prepared,
    )  # fmt: skip  # in the order of the class, as the format has it


def _holds(body: bytes, crc: int, topic: bytes, properties: bytes) -> bool:
    """Whether the body's checksum holds, there is no other, and no text can be lost.

    What a lost sector takes is zero (:mod:`lakelog.codec.losttext`), and text has no zeros.
    """
    sealed = properties[-RECORD_CRC_BYTES:_SEAL_ENDS] == START
    return crc32(body) & CRC31_MASK == crc and not sealed and 0 not in topic and 0 not in properties
