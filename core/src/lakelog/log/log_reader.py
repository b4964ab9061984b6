"""The reading half of a store: single records by place, and scans in order.

Turns errors of the operating system into ``ReadFailed``, for all public read methods.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar

import attrs

from lakelog.arguments import shown, whole
from lakelog.errors import CorruptRecord, LakelogError, OffsetOutOfRange, StoreClosed
from lakelog.format import layout
from lakelog.format.message_id import parse_message_id
from lakelog.format.record import decode
from lakelog.format.record_batch import Blank, Damage, Decoder, Piece
from lakelog.hooks import SegmentSource
from lakelog.log import sources
from lakelog.log.segments import deleted
from lakelog.log.store_directory import unread
from lakelog.message import StoredMessage

OnDamage: TypeAlias = Callable[[Damage], None]
_log = logging.getLogger("lakelog")
_FIRST_READ_BYTES: Final = 1024
"""Most records are shorter, and need no second read."""


class LogReader:
    """Reads records of one log.

    :ivar source: the bytes of the log
    :ivar bounds: their readable range
    :ivar known_damage: the known damage
    :ivar decoder: restores bodies that are stored encoded
    """

    def __init__(
        self,
        source: sources.Source,
        bounds: sources.ReadBounds,
        is_live: Callable[[], bool],
        flushed: Callable[[Callable[[], int]], int | None] | None = None,
        wait_flushed: Callable[[int, float], bool] | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        """Store the collaborators.

        :param is_live: returns whether another process may be appending
        :param flushed: determines the durable end; without it, the durable end is unknown
        :param wait_flushed: waits until an offset is durable, with a timeout in seconds
        """
        self.decoder = decoder
        self.source = source
        self.known_damage = sources.KnownDamage(source)
        self.bounds = bounds
        self._is_live = is_live
        self._flushed = flushed
        self._wait_flushed = wait_flushed
        self._older: LogReader | None = None
        self._scanned: sources.Source = source

    def add_archive(self, archive: SegmentSource, size_bytes: int) -> None:
        """Serve offsets below the log's minimum from ``archive``, segments of ``size_bytes``."""
        both = sources.ArchiveBackedSource(self.source, self.bounds, archive, size_bytes)
        self._scanned = both
        self._older = LogReader(both, both, self._is_live, decoder=self.decoder)

    @property
    def oldest_offset(self) -> int:
        """First readable offset: of the archive, or of the log without one."""
        return self.min_offset if self._older is None else self._older.min_offset

    @property
    def min_offset(self) -> int:
        """Offset of the first byte still in the log."""
        return self.bounds.minimum()

    @property
    def max_offset(self) -> int:
        """The offset where reading stops: behind the last whole record."""
        end = self.bounds.end()
        return self._found_end() if end is None else end

    def flushed(self) -> int | None:
        """The durable end; ``None`` if unknown."""
        return None if self._flushed is None else self._flushed(lambda: self.max_offset)

    def wait_flushed(self, offset: int, timeout_s: float) -> bool:
        """Wait until the log is durable up to ``offset``; ``False`` on timeout or if unknown."""
        return self._wait_flushed is not None and self._wait_flushed(offset, timeout_s)

    def _found_end(self) -> int:
        """The end of the last record or blank, found by reading the last non-empty segment."""
        end = self.bounds.minimum()
        for start in reversed(self.source.starts()):
            end = self._last_end(start, end, verify=True)
            if end > start:
                break
        return end

    def _last_end(self, start: int, end: int, *, verify: bool) -> int:
        """The end of the last record or blank from ``start`` on; ``end`` without one."""
        for piece in self._scan(start, None, verify=verify):
            if not isinstance(piece, Damage):
                end = piece.end_offset
        return end

    def end_now(self, start: int) -> int | None:
        """The present end of the log, to stop a scan that would otherwise follow the appends.

        ``None`` if no owner lives. If the owner publishes no positions, the end is found by the
        lengths of the records from ``start`` on.
        """
        known = self.bounds.end()
        if known is not None:
            return known
        return self._last_end(start, start, verify=False) if self._is_live() else None

    def pieces(self, start: int | None, end: int | None, *, verify: bool = True) -> Iterator[Piece]:
        """Yield runs of records, blanks and damage from ``start`` to ``end``, offsets of the log.

        :param verify: whether checksums are computed

        Raises :class:`~lakelog.errors.OffsetOutOfRange` if segments are deleted during the scan.
        """
        first = max(self.bounds.minimum(), start or 0)
        if self._older is not None and start is not None and start < first:
            return self._older.pieces(start, end, verify=verify)
        limit = self.bounds.end()
        if limit is not None:
            end = limit if end is None else min(limit, end)
        inside = self.known_damage.rest(first, verify=verify) if self.known_damage else None
        if inside is not None:
            return self._from_inside(inside, end, verify=verify)
        if self._is_live():
            return self._beside_owner(first, end, verify=verify, is_finished=limit is not None)
        return self._beside_nobody(first, end, verify=verify)

    def check_start(self, start: int | None) -> int | None:
        """Return ``start`` if reading can begin there; 0 and ``None`` mean the first offset.

        Raises :class:`~lakelog.errors.OffsetOutOfRange` for a deleted offset.
        """
        if start is not None:
            start = whole("start", start)
        if start and start < self.min_offset and start < (oldest := self.oldest_offset):
            raise deleted(start, oldest)
        return start

    def _from_inside(self, damage: Damage, end: int | None, *, verify: bool) -> Iterator[Piece]:
        """Yield the rest of known damage, then the pieces behind it."""
        if end is not None and end <= damage.offset:
            return iter(())
        if end is not None and end <= damage.end_offset:
            return iter((attrs.evolve(damage, end_offset=end),))
        return chain((damage,), self.pieces(damage.end_offset, end, verify=verify))

    def _scan(self, start: int, end: int | None, *, verify: bool) -> Iterator[Piece]:
        from lakelog.log.scan import scan  # not for a store that only writes

        source = sources.NoGapSource(self._scanned, self.bounds.minimum)
        found = scan(source, start, end, verify=verify)
        return found if self.decoder is None else _with(self.decoder, found)

    def _beside_nobody(self, start: int, end: int | None, *, verify: bool) -> Iterator[Piece]:
        """Scan a log without an owner; stop at damage if an owner has come meanwhile.

        That damage may be an unfinished write of the new owner, with later records behind it.
        """
        for piece in self._scan(start, end, verify=verify):
            if isinstance(piece, Damage) and self._is_live():
                yield from self.pieces(piece.offset, end, verify=verify)
                return
            yield piece

    def _beside_owner(
        self, start: int, end: int | None, *, verify: bool, is_finished: bool
    ) -> Iterator[Piece]:
        """Scan while the owner writes: bytes behind the last record may be unfinished.

        Damage before a whole record may have been read during the write, so it is read again: the
        owner writes in order, and has finished it by now. If everything before ``end``
        ``is_finished`` according to the owner, this holds for damage that ends there too.
        """
        doubted: int | None = None
        again: int | None = start
        while again is not None:
            at, again, held = again, None, None
            for piece in self._scan(at, end, verify=verify):
                if held is not None and held.offset != doubted:
                    doubted = again = held.offset
                    break
                if held is not None:
                    yield held
                held = piece if isinstance(piece, Damage) else None
                if held is None:
                    yield piece
            if again is None and held is not None and is_finished:
                if held.offset == doubted:
                    yield held
                else:
                    doubted = again = held.offset

    def messages(
        self, start: int | None, end: int | None, on_damage: OnDamage | None
    ) -> Iterator[StoredMessage]:
        """Yield every message from ``start`` to ``end``.

        :param on_damage: called with each damaged range; without it, damage is logged
        """
        report = on_damage or (lambda damage: _log.warning("%s", damage))
        for piece in self.pieces(start, end):
            if isinstance(piece, Damage):
                report(piece)
            elif not isinstance(piece, Blank):
                yield from (piece.message(at) for at in range(len(piece)))

    def look_up(self, where: int | str) -> StoredMessage:
        """The message at an offset, or with a message id.

        Raises :class:`~lakelog.errors.OffsetOutOfRange`, :class:`~lakelog.errors.CorruptRecord`,
        and ``ValueError`` or ``TypeError`` for a wrong argument.
        """
        if isinstance(where, str):
            offset = parse_message_id(where).physical_offset
        else:
            offset = whole("where", where, None)
        end = self.bounds.end()
        if self._older is not None and offset < self.bounds.minimum():
            return self._older.look_up(offset)
        if 0 <= offset < (minimum := self.bounds.minimum()):
            raise deleted(offset, minimum)
        if offset < 0 or (end is not None and offset >= end):
            raise OffsetOutOfRange(
                f"offset {shown(offset)} is not in the log, which holds {self.min_offset} to "
                f"{self.max_offset}",
                offset=offset,
            )
        damage = self.known_damage.at(offset) if self.known_damage else None
        if damage is not None:
            raise CorruptRecord(
                f"it is in a damaged range ({damage.offset} to {damage.end_offset}), and a "
                "recovery found no proof that it belongs to this log",
                offset=offset,
                path=damage.path,
            )
        return self._decode(offset)

    def _decode(self, offset: int) -> StoredMessage:
        for extent in self.source.extents(offset):  # open for as long as the loop holds it
            if extent.start <= offset < extent.end:
                stored = self._decode_from(extent, offset)
                return stored if self.decoder is None else self.decoder((stored,))[0]
            break
        if offset < self.bounds.minimum():
            raise deleted(offset, self.bounds.minimum())
        raise OffsetOutOfRange(f"no segment holds offset {offset}", offset=offset)

    @staticmethod
    def _decode_from(extent: sources.Extent, offset: int) -> StoredMessage:
        view = extent.read(offset, _FIRST_READ_BYTES)
        size, magic = sources.stated(view, extent, offset)
        if magic == layout.MAGIC_BLANK:
            raise OffsetOutOfRange(f"offset {offset} holds only a blank", offset=offset)
        if magic not in (layout.MAGIC_V1, layout.MAGIC_V2) or not size:
            raise _none_at(extent, offset)
        if size > len(view):
            view = extent.read(offset, size)
        return decode(view[:size], offset=offset)


def _none_at(extent: sources.Extent, offset: int) -> CorruptRecord | OffsetOutOfRange:
    """The error for bytes at ``offset`` that begin no record.

    Only a walk from the start of the segment shows whether a record should begin there.
    """
    at = extent.start
    while at < offset:
        size, magic = sources.head_in(extent, at)
        if magic not in (layout.MAGIC_V1, layout.MAGIC_V2) or size <= 0:
            break
        if at + size > offset:
            what = f"no record starts at offset {offset}: it is inside the one at {at}"
            return OffsetOutOfRange(what, offset=offset)
        at += size
    return CorruptRecord("no record starts here", offset=offset, path=extent.path)


def _with(decoder: Decoder, pieces: Iterator[Piece]) -> Iterator[Piece]:
    for piece in pieces:
        if not isinstance(piece, Blank | Damage):
            piece.decoder = decoder
        yield piece


class Reads(Protocol):
    """A store; ``_current.path`` is its directory, for errors that name no file."""

    _current: Any


S = TypeVar("S", bound=Reads)
P = ParamSpec("P")
T = TypeVar("T")


def reads(verb: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Make ``verb`` raise :class:`~lakelog.errors.ReadFailed` in place of ``OSError``."""

    @wraps(verb)
    def guarded(self: S, /, *arguments: P.args, **named: P.kwargs) -> T:
        parts = self._current.parts
        try:
            return verb(self, *arguments, **named)
        except (StoreClosed, OSError) as error:
            if self._current.parts is not parts and not self._current.closed:
                return guarded(self, *arguments, **named)  # its parts were replaced meanwhile
            if isinstance(error, LakelogError):
                raise
            raise unread(error, self._current.path) from error

    return guarded


@contextmanager
def failing(path: Path) -> Iterator[None]:
    """Raise :class:`~lakelog.errors.ReadFailed` in place of ``OSError``."""
    try:
        yield
    except LakelogError:
        raise
    except OSError as error:
        raise unread(error, path) from error


def iterates(
    verb: Callable[Concatenate[S, P], Iterator[T]],
) -> Callable[Concatenate[S, P], Iterator[T]]:
    """As :func:`reads` for a method that returns an iterator: guards the call and every step."""

    @wraps(verb)
    def guarded(self: S, /, *arguments: P.args, **named: P.kwargs) -> Iterator[T]:
        path = self._current.path
        return _steps(reads(verb)(self, *arguments, **named), path)

    return guarded


def _steps(found: Iterator[T], path: Path) -> Iterator[T]:
    with failing(path):
        yield from found
