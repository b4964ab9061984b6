"""The two hosts of a record, which decide how long its head is."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct

import attrs

from lakelog.codec.limits import illegal
from lakelog.format.hosts import encode_host
from lakelog.format.layout import AT_BORN_HOST, HOST_V4_BYTES, PREFIX, SUFFIX
from lakelog.format.sysflag import BORN_HOST_V6, STORE_HOST_V6


@attrs.frozen(slots=True)
class HostPair:
    """Born host and store host, with all that follows from their lengths.

    :ivar store_host: as it was given
    :ivar sys_flag: the bits that say which of them are IPv6
    :ivar head: all fields before the body
    :ivar pack: packs ``head``
    :ivar fixed_bytes: of the head and of the length of the properties
    :ivar store_time_at: where the store time stands in a record
    """

    born: bytes
    store: bytes
    store_host: str
    sys_flag: int
    head: Struct
    pack: Callable[..., bytes]
    fixed_bytes: int
    store_time_at: int


@lru_cache(maxsize=4096)
def host_pair(born_host: str, store_host: str) -> HostPair:
    """The pair of two hosts given as ``address:port``.

    Raises :class:`~lakelog.errors.IllegalMessage` where one of them is none.
    """
    born, store = _encoded("born_host", born_host), _encoded("store_host", store_host)
    flags = BORN_HOST_V6 if len(born) != HOST_V4_BYTES else 0
    if len(store) != HOST_V4_BYTES:
        flags |= STORE_HOST_V6
    head = Struct(f"{PREFIX.format}{len(born)}sq{len(store)}s{SUFFIX.format.removeprefix('>')}")
    return HostPair(
        born, store, store_host, flags, head, head.pack, head.size + 2, AT_BORN_HOST + len(born)
    )


def _encoded(name: str, host: str) -> bytes:
    try:
        return encode_host(host)
    except ValueError as error:
        raise illegal(f"{name}: {error}") from None
