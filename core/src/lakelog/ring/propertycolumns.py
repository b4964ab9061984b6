"""The property strings of many records at once, as :mod:`lakelog.ring.texts` checks them of one.

Strings end where their records do. So that they need not be gathered one by one, as many bytes
as the longest has are taken from the end of each record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from lakelog.codec.dtypes import anywhere
from lakelog.codec.losttext import SECTOR_BYTES
from lakelog.codec.recordcrc import PLACEHOLDER
from lakelog.errors import RingNonsense
from lakelog.layout import PROPERTY_SEPARATOR, RECORD_CRC_NAME
from lakelog.properties import INNER_MULTI_DISPATCH
from lakelog.ring.texts import check_properties

if TYPE_CHECKING:
    from lakelog.ring.checks import Checks

Ints = NDArray[np.int64]

_DISPATCHED: Final = INNER_MULTI_DISPATCH.encode()
_SEAL: Final = np.frombuffer(PLACEHOLDER, np.uint8)
_LONG_BYTES: Final = SECTOR_BYTES - 1
"""Strings of up to this length are looked at together."""
_END: Final = PROPERTY_SEPARATOR[0]


def check_strings(records: memoryview, ends: Ints, lengths: Ints, checks: Checks) -> bool:
    """Raise :class:`~lakelog.errors.RingNonsense` for one that no put writes.

    :returns: whether one may feed light queues
    """
    longest = int(lengths.max())
    if longest > _LONG_BYTES or longest > ends[0]:
        text, is_odd = b"\x02".join(_each(records, ends, lengths)), True
    elif longest:
        text, is_odd = _together(records, ends, lengths, longest, sealed=checks.sealed)
    else:
        text, is_odd = b"", checks.sealed
    if is_odd:
        for each in _each(records, ends, lengths):
            check_properties(each, sealed=checks.sealed)
    return checks.max_light_queues is not None and _DISPATCHED in text


def _each(records: memoryview, ends: Ints, lengths: Ints) -> list[bytes]:
    places = zip((ends - lengths).tolist(), ends.tolist(), strict=True)
    return [bytes(records[at:end]) for at, end in places]


def _together(
    records: memoryview, ends: Ints, lengths: Ints, longest: int, *, sealed: bool
) -> tuple[bytes, bool]:
    """All strings, each behind something else, and whether they need a closer look.

    They are too short to hold a lost sector. What is found before one of them costs a look in vain.
    """
    block: Any = anywhere(records, np.dtype((np.void, longest)))[ends - longest]
    block = block.view(np.uint8).reshape(len(ends), longest)
    if sealed:
        block = _without_seals(block, lengths)
        zeros = False
    else:
        zeros = bool(((block[:, -1] == 0) & (lengths > 0)).any())
    text = block.tobytes()
    return text, zeros or RECORD_CRC_NAME in text


def _without_seals(block: NDArray[np.uint8], lengths: Ints) -> NDArray[np.uint8]:
    """What stands before the room for seals, and ends as a property does."""
    own = len(_SEAL)
    if int(lengths.min()) < own or (block[:, -own:] != _SEAL).any():
        raise RingNonsense("a record has no room for its checksum at its end")
    if block.shape[1] > own and ((block[:, -own - 1] != _END) & (lengths > own)).any():
        raise RingNonsense("the property before the record checksum does not end")
    return block[:, :-own]
