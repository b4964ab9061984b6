"""One record: its parts, found without trusting any of its bytes, and the message in it.

A record counts only if all of it is checked: the chain of lengths, the magic number, the body's
checksum, and the record checksum where it is present.

The body checksum does not cover topic and properties, and a lost disk sector reads as zeros. The
record checksum covers the whole record, but is itself text at its end. If the sector that holds it
is lost, the record looks like one without a record checksum. But topic and properties are text
without zeros. So a sector is lost if it overlaps them and all of the record's bytes in it are zero.
Sectors are counted from the start of the log; they match those of the files if segments are a
multiple of 512 bytes long. Text that ends with a zero was copied incompletely: the process was
killed during the copy.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from lakelog.accelerate import current
from lakelog.errors import CorruptRecord
from lakelog.format import layout
from lakelog.format.checksum import body_crc, is_sealed, seal_holds
from lakelog.format.message_id import decode_host, host_bytes
from lakelog.message import Body, StoredMessage

_INT: Final = Struct(">i")
_LONG: Final = Struct(">q")
_SHORT: Final = Struct(">h")


class Frame(NamedTuple):
    """The parts of a record: positions in the buffer and lengths, both in bytes.

    :ivar start: position of the record's first byte
    :ivar size: length of the record
    :ivar sys_flag: its system flags, which determine the lengths of both hosts
    """

    start: int
    size: int
    magic: int
    sys_flag: int
    body_at: int
    body_length: int
    topic_at: int
    topic_length: int
    topic: str
    properties_at: int
    properties_length: int


def read_frame(data: memoryview, start: int, end: int, offset: int) -> Frame:
    """The frame of the record at ``data[start:end]``, whose physical offset is ``offset``.

    Raises :class:`~lakelog.errors.CorruptRecord` if the lengths disagree. Reads nothing
    outside ``data[start:end]``.
    """
    if start < 0 or end - start < layout.RECORD_MIN_BYTES:
        raise CorruptRecord(
            "too few bytes are left",
            offset=offset,
            expected=layout.RECORD_MIN_BYTES,
            found=end - start,
        )
    size, magic = layout.BLANK.unpack_from(data, start)
    if magic not in (layout.MAGIC_V1, layout.MAGIC_V2):
        raise CorruptRecord(
            "no record starts here",
            offset=offset,
            expected=f"magic {layout.MAGIC_V1:08x} or {layout.MAGIC_V2:08x}",
            found=f"{magic:08x}",
        )
    if not layout.RECORD_MIN_BYTES <= size <= end - start:
        raise CorruptRecord(
            "its length is wrong",
            offset=offset,
            expected=f"{layout.RECORD_MIN_BYTES} to {end - start} bytes",
            found=size,
        )
    return _parts(data, start, size, magic, offset)


def _parts(data: memoryview, start: int, size: int, magic: int, offset: int) -> Frame:
    end = start + size
    (sys_flag,) = _INT.unpack_from(data, start + layout.AT_SYS_FLAG)
    hosts = host_bytes(bool(sys_flag & layout.BORN_HOST_V6)) + host_bytes(
        bool(sys_flag & layout.STORE_HOST_V6)
    )
    body_at = start + layout.AT_BORN_HOST + hosts + 8 + 16
    topic_size = 1 if magic == layout.MAGIC_V1 else 2
    body_length = _length(_INT, data, body_at - 4, end - topic_size - 2, "body", offset)
    topic_at = body_at + body_length + topic_size
    topic_length = int.from_bytes(data[topic_at - topic_size : topic_at], "big")
    properties_at = topic_at + topic_length + 2
    if properties_at > end:
        raise CorruptRecord(
            "its topic does not fit",
            offset=offset,
            expected=f"at most {end - topic_at - 2} bytes",
            found=topic_length,
        )
    properties_length = _length(_SHORT, data, properties_at - 2, end, "properties", offset)
    if properties_at + properties_length != end:
        raise CorruptRecord(
            "its parts do not fill it",
            offset=offset,
            expected=size,
            found=properties_at + properties_length - start,
        )
    try:
        topic = str(data[topic_at : topic_at + topic_length], "utf-8")
    except UnicodeDecodeError:
        raise CorruptRecord("its topic is not valid UTF-8", offset=offset) from None
    return Frame(
        start, size, magic, sys_flag, body_at, body_length,
        topic_at, topic_length, topic, properties_at, properties_length,
    )  # fmt: skip  # in the order of the class


def _length(kind: Struct, data: memoryview, at: int, end: int, what: str, offset: int) -> int:
    length = int(kind.unpack_from(data, at)[0]) if at + kind.size <= end else -1
    if not 0 <= length <= end - at - kind.size:
        raise CorruptRecord(
            f"its {what} does not fit",
            offset=offset,
            expected=f"0 to {end - at - kind.size} bytes",
            found=length,
        )
    return length


def checked_frame(
    data: memoryview,
    start: int,
    end: int,
    offset: int | None,
    *,
    verify: bool = True,
    sealed: bool = False,
) -> Frame:
    """As :func:`read_frame`, with checks of the offset and the checksums that the record states.

    :param offset: ``None`` accepts any
    :param verify: whether checksums are computed
    :param sealed: whether a record checksum is required

    Raises :class:`~lakelog.errors.CorruptRecord` if a check fails.
    """
    at = start if offset is None else offset
    frame = read_frame(data, start, end, at)
    (stated,) = _LONG.unpack_from(data, start + layout.AT_PHYSICAL_OFFSET)
    if offset is not None and stated != offset:
        raise CorruptRecord(
            "it belongs to another place", offset=offset, expected=offset, found=stated
        )
    if verify:
        verify_checksums(data, frame, at)
    properties = data[frame.properties_at : frame.start + frame.size]
    if sealed and not is_sealed(properties):
        raise CorruptRecord(
            "its record checksum is missing (require_record_crc)",
            offset=at,
            expected="__CRC32# at its end",
            found=bytes(properties[-20:]),
        )
    return frame


def verify_checksums(data: memoryview, frame: Frame, offset: int) -> None:
    """Check the checksum of the body, and the record checksum if there is one.

    Also checks that topic and properties are not lost, see the module. Raises
    :class:`~lakelog.errors.CorruptRecord`.
    """
    (stated,) = _INT.unpack_from(data, frame.start + layout.AT_BODY_CRC)
    found = body_crc(data[frame.body_at : frame.body_at + frame.body_length])
    if stated != found:
        raise CorruptRecord(
            "its body is damaged", offset=offset, expected=f"CRC {stated}", found=f"CRC {found}"
        )
    end = frame.start + frame.size
    record = data[frame.start : end]
    if is_sealed(data[frame.properties_at : end]) and not seal_holds(record):
        raise CorruptRecord(
            "it is damaged", offset=offset, expected="the CRC at its end", found="another"
        )
    if lost_text(record, frame.topic_at - frame.start, frame.properties_at - frame.start, offset):
        raise CorruptRecord("a part of its topic or properties is lost: all zero", offset=offset)


SECTOR_BYTES: Final = 512


def lost_text(record: memoryview, topic_at: int, properties_at: int, offset: int) -> bool:
    """Whether a zero sector covers part of the topic or properties, or their text ends with a zero.

    :param record: the whole record; ``topic_at`` and ``properties_at`` are positions in it
    :param offset: physical offset of the record
    """
    text = bytes(record[topic_at : properties_at - 2]) + bytes(record[properties_at:])
    if 0 not in text:
        return False
    if text.endswith(b"\x00"):
        return True
    first = topic_at - (offset + topic_at) % SECTOR_BYTES
    return any(
        _is_lost(record, topic_at, properties_at, range(start, start + SECTOR_BYTES))
        for start in range(first, len(record), SECTOR_BYTES)
    )


def _is_lost(record: memoryview, topic_at: int, properties_at: int, sector: range) -> bool:
    """Whether all of the record's bytes in ``sector`` are zero, and some of them are text."""
    start, stop = max(sector.start, 0), min(sector.stop, len(record))
    is_length = start >= properties_at - 2 and stop <= properties_at
    if start >= stop or stop <= topic_at or is_length:
        return False
    return not any(record[start:stop])


def decode(
    data: Body, at: int = 0, *, offset: int | None = None, verify: bool = True
) -> StoredMessage:
    """The message whose record starts at ``data[at]``.

    :param offset: physical offset that the record must state; ``None`` accepts any
    :param verify: whether checksums are computed; lengths and ``offset`` are always checked

    Raises :class:`~lakelog.errors.CorruptRecord`.
    """
    view = memoryview(data).cast("B")
    accelerator = current()
    if accelerator is not None:
        message = accelerator.message(view, at, offset, verify=verify)
        if message is not None:
            return message
    return decode_frame(view, checked_frame(view, at, len(view), offset, verify=verify))


def decode_frame(view: memoryview, frame: Frame) -> StoredMessage:
    """The message of a record whose frame was already checked."""
    fixed = layout.PREFIX.unpack_from(view, frame.start)
    _, _, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born = fixed
    store_time_at = (
        frame.start + layout.AT_BORN_HOST + host_bytes(bool(sys_flag & layout.BORN_HOST_V6))
    )
    suffix_at = frame.body_at - layout.SUFFIX.size
    reconsume_times, prepared, _ = layout.SUFFIX.unpack_from(view, suffix_at)
    return StoredMessage(
        frame.topic,
        queue_id,
        queue_offset,
        physical_offset,
        frame.size,
        frame.magic,
        bytes(view[frame.body_at : frame.body_at + frame.body_length]),
        body_crc,
        bytes(view[frame.properties_at : frame.properties_at + frame.properties_length]),
        flag,
        sys_flag,
        born,
        decode_host(bytes(view[frame.start + layout.AT_BORN_HOST : store_time_at])),
        _LONG.unpack_from(view, store_time_at)[0],
        decode_host(bytes(view[store_time_at + _LONG.size : suffix_at])),
        reconsume_times,
        prepared,
    )
