"""The reading half of a store: one record by its place, and everything in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from lakelog.codec import decode
from lakelog.codec.recordbatch import RecordBatch
from lakelog.errors import CorruptRecord, OffsetOutOfRange
from lakelog.layout import BLANK, MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from lakelog.message import StoredMessage
from lakelog.msgid import parse_message_id
from lakelog.scan import Damage, Piece, scan
from lakelog.source import Source

OnDamage: TypeAlias = Callable[[Damage], None]
_log = logging.getLogger("lakelog")


class Bounds(Protocol):
    """Between which offsets a log can be read."""

    def minimum(self) -> int:
        """First byte that is there."""

    def end(self) -> int | None:
        """Where reading stops; ``None`` if that has to be found out by reading."""


class LogReader:
    """Reads records of one log."""

    def __init__(self, source: Source, bounds: Bounds, is_live: Callable[[], bool]) -> None:
        self._source = source
        self._bounds = bounds
        self._is_live = is_live

    @property
    def min_offset(self) -> int:
        """First byte of the log that is still there."""
        return self._bounds.minimum()

    @property
    def max_offset(self) -> int:
        """Where reading stops: behind the last whole record."""
        end = self._bounds.end()
        return self._found_end() if end is None else end

    def _found_end(self) -> int:
        """Behind the last record or blank, found by reading the last segment that holds any."""
        end = self._bounds.minimum()
        for extent in reversed(list(self._source.starts())):
            for piece in scan(self._source, extent, None):
                if isinstance(piece, RecordBatch):
                    end = piece.end_offset
                elif not isinstance(piece, Damage):
                    end = piece.offset + piece.size
            if end > extent:
                break
        return end

    def pieces(self, start: int | None, end: int | None, *, verify: bool = True) -> Iterator[Piece]:
        """Runs of records, blanks and damage from ``start`` to ``end``."""
        first = max(self._bounds.minimum(), start or 0)
        limit = self._bounds.end()
        if limit is not None:
            end = limit if end is None else min(limit, end)
        pieces = scan(self._source, first, end, verify=verify)
        return self._without_live_tail(pieces) if self._is_live() else pieces

    @staticmethod
    def _without_live_tail(pieces: Iterator[Piece]) -> Iterator[Piece]:
        """While its owner writes, what stands behind the last record is not finished yet."""
        held: Damage | None = None
        for piece in pieces:
            if held is not None:
                yield held
            held = piece if isinstance(piece, Damage) else None
            if held is None:
                yield piece

    def messages(
        self, start: int | None, end: int | None, on_damage: OnDamage | None
    ) -> Iterator[StoredMessage]:
        """Every message from ``start`` to ``end``."""
        report = on_damage or _warn
        for piece in self.pieces(start, end):
            if isinstance(piece, RecordBatch):
                for at in range(len(piece)):
                    message = piece.message(at)
                    if end is None or message.physical_offset < end:
                        yield message
            elif isinstance(piece, Damage):
                report(piece)

    def look_up(self, where: int | str) -> StoredMessage:
        """The message at an offset, or with a message id."""
        offset = parse_message_id(where).physical_offset if isinstance(where, str) else where
        end = self._bounds.end()
        if offset < self._bounds.minimum() or (end is not None and offset >= end):
            raise OffsetOutOfRange(
                f"offset {offset} is not in the log, which holds {self.min_offset} to "
                f"{self.max_offset}",
                offset=offset,
            )
        return self._decode(offset)

    def _decode(self, offset: int) -> StoredMessage:
        extent = next(self._source.extents(offset), None)
        if extent is None or not extent.start <= offset < extent.end:
            raise OffsetOutOfRange(f"no segment holds offset {offset}", offset=offset)
        head = extent.read(offset, BLANK.size)
        size, magic = BLANK.unpack(head) if len(head) == BLANK.size else (0, 0)
        if magic == MAGIC_BLANK:
            raise OffsetOutOfRange(f"only a blank stands at offset {offset}", offset=offset)
        if magic not in (MAGIC_V1, MAGIC_V2) or not 0 < size <= extent.end - offset:
            raise CorruptRecord("no record starts here", offset=offset, path=extent.path)
        return decode(extent.read(offset, size), offset=offset)


def _warn(damage: Damage) -> None:
    _log.warning("%s", damage)
