"""One packet of a socket is one JSON object, or a single byte that only wakes who sleeps there.

Nothing that comes is trusted: a packet that is too long, no JSON, or no object is
:class:`Nonsense`.
"""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from lakelog.errors import LakelogError

MOST_BYTES: Final = 16 << 10
"""The longest packet that either end takes."""
WAKE: Final = b"\n"
_DESCRIPTOR: Final = array.array("i").itemsize
_MOST_DESCRIPTORS: Final = 8
_NOW: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class Nonsense(LakelogError):
    """A peer said what no peer says."""


def send(to: socket.socket, said: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Say something, without waiting; raises ``OSError`` if the peer takes nothing any more."""
    data = json.dumps(said, separators=(",", ":")).encode()
    sent = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    to.sendmsg([data], sent if descriptors else [], _NOW)


def wake(peer: socket.socket) -> None:
    """Wake whoever sleeps at the other end; one whose socket is full or closed is awake."""
    with suppress(OSError):
        peer.send(WAKE, _NOW)


def receive(
    source: socket.socket, *, descriptors: bool = False
) -> tuple[dict[str, Any] | None, list[int]] | None:
    """The next thing said, and the descriptors that came with it, which are then the caller's.

    :param descriptors: whether any may come
    :returns: ``None`` for the end; the first part is ``None`` where it only woke

    Raises ``BlockingIOError``, ``TimeoutError`` and :class:`Nonsense`.
    """
    room = socket.CMSG_SPACE(_MOST_DESCRIPTORS * _DESCRIPTOR) if descriptors else 0
    try:
        data, rights, flags = _packet(source, room)
    except ConnectionError:
        return None
    got = _descriptors(rights)
    try:
        return (_said(data, flags), got) if data else None
    except Nonsense:
        close_all(got)
        raise


def _packet(source: socket.socket, room: int) -> tuple[bytes, list[tuple[int, int, bytes]], int]:
    """A peer that hangs up before it has read all sets an error, once, before its last words."""
    try:
        data, rights, flags, _ = source.recvmsg(MOST_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        data, rights, flags, _ = source.recvmsg(MOST_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    return data, rights, flags


def _said(data: bytes, flags: int) -> dict[str, Any] | None:
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        raise Nonsense(f"a packet is longer than {MOST_BYTES} bytes, or brings descriptors")
    if data == WAKE:
        return None
    try:
        said = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Nonsense(f"a packet is no JSON ({error})") from None
    if not isinstance(said, dict):
        raise Nonsense("a packet is no JSON object")
    return said


def _descriptors(rights: Sequence[tuple[int, int, bytes]]) -> list[int]:
    got = array.array("i")
    for level, kind, data in rights:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            got.frombytes(data[: len(data) - len(data) % _DESCRIPTOR])
    return got.tolist()


def close_all(descriptors: Sequence[int]) -> None:
    """Close what nobody wants."""
    for each in descriptors:
        with suppress(OSError):
            os.close(each)
