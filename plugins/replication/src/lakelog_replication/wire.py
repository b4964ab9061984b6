"""The frames and reports of RocketMQ's default HA protocol.

Numbers are big-endian. The protocol has no version, no names, no checksum and no end mark::

    slave -> master   report   int64 offset: the slave has the log up to here
    master -> slave   frame    int64 offset of the body's first byte, int32 size, then the body

A frame of size 0 is a heartbeat; its offset is where the next frame will start. The source is
RocketMQ 5.3.3, ``DefaultHAConnection`` and ``DefaultHAClient``.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from lakelog.errors import LakelogError

FRAME_HEADER: Final = struct.Struct(">qi")
"""The offset and the size of a body, before it."""
REPORT: Final = struct.Struct(">q")
"""The end of what the slave has."""

MAX_FRAME_BYTES: Final = 4 << 20
"""Largest frame with its header: the size of a RocketMQ slave's buffer."""

MAX_BODY_BYTES: Final = MAX_FRAME_BYTES - FRAME_HEADER.size


class WireError(LakelogError):
    """The peer sent bytes that the HA protocol does not allow; the connection must be closed."""


class HaFrame(NamedTuple):
    """A whole frame.

    :ivar offset: physical offset of the body's first byte
    :ivar body: bytes of the log; empty in a heartbeat
    """

    offset: int
    body: memoryview

    @property
    def end_offset(self) -> int:
        """Where the next frame must start."""
        return self.offset + len(self.body)


class FrameStream:
    """Cuts the bytes that a slave receives into frames; uses one buffer of a fixed size.

    Receive into :meth:`room`, then call :meth:`received`.
    """

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(MAX_FRAME_BYTES))
        self._first = 0  # start of the bytes that were not returned in a frame
        self._end = 0  # end of the received bytes

    def room(self) -> memoryview:
        """The free part of the buffer, never empty. The bodies of earlier frames become invalid."""
        if self._first:
            rest = self._end - self._first
            self._buffer[:rest] = bytes(self._buffer[self._first : self._end])
            self._first, self._end = 0, rest
        return self._buffer[self._end :]

    def received(self, count: int) -> list[HaFrame]:
        """Return all complete frames, after ``count`` bytes were written into :meth:`room`.

        Their bodies are views of the buffer, valid until the next call of :meth:`room`. Raises
        :class:`WireError` for a size below 0 or above ``MAX_BODY_BYTES``, and for an offset below
        0, as soon as the header was received. Earlier frames of the same call are not returned
        then.
        """
        self._end = end = self._end + count
        buffer, first, frames = self._buffer, self._first, []
        while end - first >= FRAME_HEADER.size:
            offset, size = FRAME_HEADER.unpack_from(buffer, first)
            if offset < 0 or not 0 <= size <= MAX_BODY_BYTES:
                raise WireError(
                    f"a frame at offset {offset} with {size} bytes; the offset must not be "
                    f"negative, and the size must be from 0 to {MAX_BODY_BYTES}: is the peer a "
                    "master of RocketMQ's HA protocol?"
                )
            start = first + FRAME_HEADER.size
            if end - start < size:
                break
            first = start + size
            frames.append(HaFrame(offset, buffer[start:first]))
        self._first = first
        return frames


def whole_reports(data: bytes) -> tuple[list[int], bytes]:
    """The offsets of the whole reports at the start of ``data``, in order, and the other bytes."""
    whole = len(data) - len(data) % REPORT.size
    return [offset for (offset,) in REPORT.iter_unpack(data[:whole])], data[whole:]
