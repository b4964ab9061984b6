"""Property strings that a put would not write, wherever they come from.

The same rules as :mod:`lakelog.codec.messageproperties` has for what a user gives as bytes.
"""

from __future__ import annotations

from typing import Final

from lakelog.codec.losttext import SECTOR_BYTES
from lakelog.codec.recordcrc import PLACEHOLDER, START, is_sealed
from lakelog.errors import RingNonsense
from lakelog.layout import PROPERTY_SEPARATOR, RECORD_CRC_NAME

_LOST: Final = bytes(SECTOR_BYTES)


def check_properties(properties: bytes, *, sealed: bool) -> None:
    """Raise :class:`~lakelog.errors.RingNonsense` for a property string that no put writes.

    :param sealed: whether it has to end with room for a record checksum
    """
    own = properties
    if sealed:
        own = properties.removesuffix(PLACEHOLDER)
        if len(own) == len(properties):
            raise RingNonsense("a record has no room for its checksum at its end")
        if own and not own.endswith(PROPERTY_SEPARATOR):
            raise RingNonsense("the property before the record checksum does not end")
    if RECORD_CRC_NAME in own and _has_seal(own):
        raise RingNonsense("a property of a record would pass for its checksum, __CRC32#")
    if own.endswith(b"\x00") or _LOST in own:
        raise RingNonsense("the properties of a record would pass for a lost sector")


def _has_seal(own: bytes) -> bool:
    if is_sealed(own):
        return True
    return any(piece.startswith(START) for piece in own.split(PROPERTY_SEPARATOR))
