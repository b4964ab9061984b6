"""Detects pins that were made for an earlier log in this directory.

A log that was cut, or restored from an older copy, continues below a pin's position with messages
that its follower never read. Going by the position alone, they would be deleted unread. So a pin
holds every segment if its position is behind the log's end, or if the log lacks the record of its
fingerprint. If that record was already deleted, nothing can be detected.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable

import attrs

from lakelog.errors import LakelogError, OffsetOutOfRange
from lakelog.format.checksum import Fingerprint
from lakelog.log.reading.pieces import Blank, Damage, Piece
from lakelog_retention.pins import Pin


@attrs.frozen
class PinValidator:
    """Compares pins with a log.

    :ivar pieces: reads the log between two offsets
    """

    pieces: Callable[[int, int], Iterable[Piece]]

    def judged(self, pin: Pin, minimum: int, end: int) -> Pin:
        """Return ``pin``; with a ``problem`` if it is of another log, so that it holds everything.

        :param pin: read before ``end`` was taken: a later one could be past it
        """
        why = pin.problem or self._why(pin, minimum, end)
        return pin if why == pin.problem else attrs.evolve(pin, position=0, problem=why)

    def _why(self, pin: Pin, minimum: int, end: int) -> str | None:
        last = pin.fingerprint
        if pin.position > end:
            return _problem(pin, f"the log ends at {end}")
        if last is None or last.offset < minimum or self._is_there(last):
            return None
        return _problem(pin, f"the record that it read at offset {last.offset} is not there")

    def _is_there(self, last: Fingerprint) -> bool:
        try:
            piece = next(iter(self.pieces(last.offset, last.offset + last.size)), None)
        except OffsetOutOfRange:  # deleted meanwhile
            return True
        except (LakelogError, OSError):
            return False
        if piece is None or isinstance(piece, Blank | Damage):
            return False
        if int(piece.physical_offsets[0]) != last.offset:
            return False
        record = piece.record(0)
        return (len(record), zlib.crc32(record)) == (last.size, last.crc)


def _problem(pin: Pin, found: str) -> str:
    return (
        f"pin {pin.name!r} is of another log: its position is {pin.position}, but {found}; this "
        "log was cut or restored since. No segment is deleted while the pin exists: let its "
        "follower start from the beginning, or remove the pin with 'lakelog pins remove'"
    )
