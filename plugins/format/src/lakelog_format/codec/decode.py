"""Decodes one record to a :class:`~lakelog_format.message.StoredMessage`."""

from __future__ import annotations

from struct import Struct
from typing import Final

from lakelog_format.accelerate import current
from lakelog_format.codec.frame import Frame, read_frame, verify_checksums, verify_place
from lakelog_format.fields.hosts import decode_host, host_bytes
from lakelog_format.fields.layout import AT_BORN_HOST, PREFIX, SUFFIX
from lakelog_format.fields.sysflag import BORN_HOST_V6
from lakelog_format.message import Body, StoredMessage

_LONG: Final = Struct(">q")


def decode(
    data: Body, at: int = 0, *, offset: int | None = None, verify: bool = True
) -> StoredMessage:
    """The message whose record starts at ``data[at]``.

    :param offset: physical offset that the record must state; ``None`` accepts any
    :param verify: whether checksums are computed; lengths and ``offset`` are always checked

    Raises :class:`~lakelog_format.errors.CorruptRecord`.
    """
    view = memoryview(data).cast("B")
    accelerator = current()
    if accelerator is not None:
        message = accelerator.message(view, at, offset, verify=verify)
        if message is not None:
            return message
    frame = read_frame(view, at, len(view), at if offset is None else offset)
    if offset is not None:
        verify_place(view, frame, offset)
    if verify:
        verify_checksums(view, frame, at if offset is None else offset)
    return decode_frame(view, frame)


def decode_frame(view: memoryview, frame: Frame) -> StoredMessage:
    """The message of a record whose frame was already checked."""
    fixed = PREFIX.unpack_from(view, frame.start)
    _, _, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born = fixed
    store_time_at = frame.start + AT_BORN_HOST + host_bytes(bool(sys_flag & BORN_HOST_V6))
    suffix_at = frame.body_at - SUFFIX.size
    reconsume_times, prepared, _ = SUFFIX.unpack_from(view, suffix_at)
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
        decode_host(bytes(view[frame.start + AT_BORN_HOST : store_time_at])),
        _LONG.unpack_from(view, store_time_at)[0],
        decode_host(bytes(view[store_time_at + _LONG.size : suffix_at])),
        reconsume_times,
        prepared,
    )
