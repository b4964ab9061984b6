"""The bytes of segments, from files, an open store or an archive; their readable range and damage.

The file ``lakelog/damage.json`` has the ranges of the log that are not whole records, and stay in
it: ``{"damage": [{"offset": N, "end_offset": N, "what": TEXT, "unproven": BOOL, "head": HEX,
"to_fill": BOOL}]}``; see ``Damage``. Readers skip these ranges without checking them again. A
recovery that reads a part of the log replaces the entries of that part and keeps the others.

A scan skips known damage. But a queue unit, an index entry or a saved offset may point into it,
where old, whole records can be that do not belong to the log. Reads of single records find such
damage by :class:`KnownDamage`. As in a scan, an entry counts only while the damaged bytes are
unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import attrs

from lakelog.errors import CorruptRecord, ReadFailed
from lakelog.files.filesystem import File, FileSystem, RealFileSystem, unreadable
from lakelog.files.identity import read_own, write_own
from lakelog.files.segment_files import SegmentFile, segment_files
from lakelog.format.layout import BLANK, segment_name
from lakelog.format.record_batch import Damage
from lakelog.hooks import SegmentSource
from lakelog.log.segments import Segments, deleted
from lakelog.log.store_directory import StoreDirectory
from lakelog.processes.positions import Positions
from lakelog.processes.shared_page import TRUSTED_S, PageView


class Extent(Protocol):
    """One segment as input of a scan; positions are offsets in the log, in bytes.

    :ivar start: offset of its first byte
    :ivar end: offset behind its last byte; a truncated segment ends before its full length
    """

    start: int
    end: int

    @property
    def path(self) -> Path | None:
        """Its file, if it has one."""

    def read(self, offset: int, length: int) -> memoryview:
        """Bytes from ``offset``, fewer than ``length`` only at the end."""

    def next_data(self, offset: int) -> int | None:
        """Offset of the next bytes that may be non-zero."""


class Source(Protocol):
    """A log as input of a scan."""

    @property
    def known_damage(self) -> Mapping[int, Damage]:
        """The damage found by a recovery, by its first byte."""

    def starts(self) -> Sequence[int]:
        """The start offset of each segment, in order."""

    def extents(self, start: int) -> Iterator[Extent]:
        """Yield the segments from the one at ``start`` on; each is open until the next one."""


def head_in(extent: Extent, offset: int) -> tuple[int, int]:
    """Size and magic number that the record or blank at ``offset`` states.

    The size is 0 if so many bytes are not left in the segment.
    """
    return stated(extent.read(offset, BLANK.size), extent, offset)


def stated(view: memoryview, extent: Extent, offset: int) -> tuple[int, int]:
    """As :func:`head_in`, of the bytes ``view`` that were read at ``offset``."""
    size, magic = BLANK.unpack_from(view) if len(view) >= BLANK.size else (0, 0)
    return size if 0 < size <= extent.end - offset else 0, magic


def read_at(source: Source, offset: int, length: int) -> memoryview:
    """At most ``length`` bytes from ``offset``, within its segment; none if there is no such."""
    for extent in source.extents(offset):  # open as long as the loop runs
        if extent.start <= offset < extent.end:
            return extent.read(offset, length)
        break
    return memoryview(b"")


class FileExtent:
    """A segment file read by ``pread``, which also works for damaged or changing files."""

    def __init__(self, segment: SegmentFile, file: File, size_bytes: int) -> None:
        self.start = segment.start_offset
        self.end = segment.start_offset + min(segment.length, size_bytes)
        self._segment = segment
        self._file = file
        self._zeros: list[tuple[int, int | None]] = []  # each from an offset to the next data

    @property
    def path(self) -> Path:
        """The file."""
        return self._segment.path

    def read(self, offset: int, length: int) -> memoryview:
        """Read at most to the end of the segment; raises ``ReadFailed`` on an I/O error."""
        length = min(length, self.end - offset)
        try:
            return memoryview(self._file.read_at(offset - self.start, length))
        except OSError as error:
            raise ReadFailed(
                f"{length} bytes from offset {offset} of the log cannot be read "
                f"({error.strerror or error}); check the disk",
                path=self._segment.path,
                error=error,
            ) from error

    def next_data(self, offset: int) -> int | None:
        """Skip holes and zeros; the result is cached, and used again within the same zeros."""
        for asked, answer in self._zeros:
            if asked <= offset and (answer is None or offset <= answer):
                return answer
        position = self._file.next_data(offset - self.start)
        answer = None if position is None else self.start + position
        if answer != offset:
            self._zeros.append((offset, answer))
        return answer


class FileSource:
    """A directory of segments, read without a lock and without changing a byte.

    :ivar size_bytes: length of each segment
    :ivar known_damage: damaged ranges, by their first byte
    """

    def __init__(
        self,
        files: FileSystem,
        directory: Path,
        size_bytes: int,
        known_damage: Iterable[Damage] = (),
    ) -> None:
        self.known_damage = {each.offset: each for each in known_damage}
        self._files = files
        self._directory = directory
        self.size_bytes = size_bytes
        self._first: int | None = None

    def folder(self) -> Path | None:
        """The folder of the segments, if it is the operating system's."""
        return self._directory if type(self._files) is RealFileSystem else None

    def segments(self, start: int = 0) -> list[SegmentFile]:
        """The present segment files, from the one at ``start`` on."""
        least = segment_name(max(start - self.size_bytes + 1, 0))
        found = self._files.list(self._directory)
        return segment_files(self._directory, (each for each in found if each[0] >= least))

    def starts(self) -> list[int]:
        """The start offsets of the present segments."""
        return [segment.start_offset for segment in self.segments()]

    def first(self) -> int | None:
        """The start of the first segment, if there is one.

        It is kept until that file is gone, since segments are deleted in order.
        """
        if self._first is None or not self._is_there(self._first):
            self._first = next(iter(self.starts()), None)
        return self._first

    def _is_there(self, start: int) -> bool:
        with self._opened(self._directory / segment_name(start)) as file:
            return file is not None

    def extents(self, start: int) -> Iterator[FileExtent]:
        """Yield each segment, open while the caller uses it.

        Segments are opened by name. The directory is only listed if one is missing, since most
        callers read few segments.
        """
        start -= start % self.size_bytes
        while True:
            path = self._directory / segment_name(start)
            with self._opened(path) as file:
                if file is None:
                    break
                segment = SegmentFile(path, start, file.size())
                yield FileExtent(segment, file, self.size_bytes)
            start += self.size_bytes
        for segment in self.segments(start):
            with self._opened(segment.path) as file:
                if file is not None:
                    yield FileExtent(segment, file, self.size_bytes)

    @contextmanager
    def _opened(self, path: Path) -> Iterator[File | None]:
        """The open file; ``None`` if it does not exist any more."""
        try:
            file = self._files.open(path)
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            raise unreadable(path, error, "opened") from error
        with closing(file):
            yield file


class ViewExtent:
    """A segment of an open store."""

    path = None

    def __init__(self, segments: Segments, start: int) -> None:
        self.start = start
        self.end = start + segments.size_bytes
        self._segments = segments

    def read(self, offset: int, length: int) -> memoryview:
        """Read at most to the end of the segment."""
        return self._segments.view(offset, length)

    def next_data(self, offset: int) -> int | None:
        """Return ``offset``: in an open store all bytes before the end are data."""
        return offset


class ViewSource:
    """The segments of an open store."""

    def __init__(self, segments: Segments, known_damage: Iterable[Damage] = ()) -> None:
        self.known_damage = {each.offset: each for each in known_damage}
        self.segments = segments

    def starts(self) -> Sequence[int]:
        """The start offset of each segment."""
        return self.segments.starts()

    def extents(self, start: int) -> Iterator[ViewExtent]:
        """Yield each segment from the one at ``start`` on."""
        for first in self.starts():
            if first + self.segments.size_bytes > start:
                yield ViewExtent(self.segments, first)


class NoGapSource:
    """A log whose scan raises an error if segments are deleted before they were read.

    :param minimum: returns the first offset of the log
    """

    def __init__(self, source: Source, minimum: Callable[[], int]) -> None:
        self._source = source
        self._minimum = minimum

    @property
    def known_damage(self) -> Mapping[int, Damage]:
        """The known damage of the log."""
        return self._source.known_damage

    def starts(self) -> Sequence[int]:
        """The start offset of each segment."""
        return self._source.starts()

    def extents(self, start: int) -> Iterator[Extent]:
        """Yield each segment; raises ``OffsetOutOfRange`` if the next one has been deleted."""
        due = start
        for extent in self._source.extents(start):
            if extent.start > due:
                self._check(due)
            yield extent
            due = extent.end
        self._check(due)  # the last segments may have been deleted before they were opened

    def _check(self, due: int) -> None:
        if (minimum := self._minimum()) > due:
            raise deleted(due, minimum)


class ReadBounds(Protocol):
    """The readable range of a log."""

    def minimum(self) -> int:
        """Offset of the first byte."""

    def end(self) -> int | None:
        """Where reading stops; ``None`` if that must be found by reading."""


@attrs.define(eq=False, repr=False)
class ArchivedExtent:
    """An archived segment; all of its bytes count as data."""

    archive: SegmentSource
    start: int
    end: int
    path: None = None

    def read(self, offset: int, length: int) -> memoryview:
        """Read at most to the end of the segment."""
        length = min(length, self.end - offset)
        return memoryview(self.archive.read(self.start, offset - self.start, length))

    def next_data(self, offset: int) -> int | None:
        """Return ``offset``: an archive does not report holes."""
        return offset


@attrs.frozen(eq=False, repr=False)
class ArchiveBackedSource:
    """A log and its archive as one ``Source``, with the bounds of both together.

    Older segments are read from the archive.
    """

    log: Source
    bounds: ReadBounds
    archive: SegmentSource
    size_bytes: int

    @property
    def known_damage(self) -> Mapping[int, Damage]:
        """The known damage of the log."""
        return self.log.known_damage

    def minimum(self) -> int:
        """First offset of archive and log."""
        here = self.bounds.minimum()
        return min(next(iter(self.archive.starts()), here), here)

    def end(self) -> int | None:
        """End of the log."""
        return self.bounds.end()

    def starts(self) -> list[int]:
        """The start offset of each segment."""
        here = self.log.starts()
        return [*(each for each in self.archive.starts() if not here or each < here[0]), *here]

    def extents(self, start: int) -> Iterator[Extent]:
        """Yield each segment; one deleted meanwhile is read from the archive.

        A segment is archived before it is deleted.
        """
        at: int | None = start
        while at is not None:
            older = self._older(at)
            if older is None:
                at = yield from self._of_log(at)
            else:
                at = older + self.size_bytes
                yield ArchivedExtent(self.archive, older, at)

    def _of_log(self, at: int) -> Generator[Extent, None, int | None]:
        """Yield the log's segments; return the offset of a segment archived meanwhile, if any."""
        for extent in self.log.extents(at):
            if extent.start > at and self._older(at) is not None:
                return at
            yield extent
            at = extent.end
        return None

    def _older(self, at: int) -> int | None:
        """The next segment from ``at`` that only the archive has."""
        here = next(iter(self.log.starts()), None)
        if here is not None and at >= here:
            return None
        found = (each for each in self.archive.starts() if each + self.size_bytes > at)
        older = next(found, None)
        return None if older is None or (here is not None and older >= here) else older


@attrs.frozen(eq=False, repr=False)
class OwnedBounds:
    """The bounds of an owner, from its positions."""

    positions: Positions

    def minimum(self) -> int:
        """Offset of the first byte still in the log."""
        return self.positions.minimum

    def end(self) -> int | None:
        """The readable end."""
        return self.positions.readable


@attrs.define(eq=False, repr=False)
class ReaderBounds:
    """The bounds of a reader: from a living owner's page, else from the files.

    A call needs the bounds several times, and reading them from the files takes eight system calls.
    So they are used again for a millisecond. A process that opens the store is noticed that much
    later.

    :ivar page: returns the current page, if any
    :ivar clean_end: returns the end noted by a clean stop, while the note is valid
    """

    source: FileSource
    page: Callable[[], PageView | None]
    clean_end: Callable[[], int | None]
    _of_files: tuple[int, int | None] = attrs.field(default=(0, None), init=False)
    _until: float = attrs.field(default=0.0, init=False)

    def minimum(self) -> int:
        """The page's minimum, or the start of the first segment."""
        page = self.page()
        return self._from_files()[0] if page is None else page.minimum

    def end(self) -> int | None:
        """The readable end; ``None`` if it must be found by reading."""
        page = self.page()
        return self._from_files()[1] if page is None else page.readable

    def _from_files(self) -> tuple[int, int | None]:
        now = time.monotonic()
        if now >= self._until:
            self._of_files = self.source.first() or 0, self.clean_end()
            self._until = now + TRUSTED_S
        return self._of_files


DAMAGE_FILE: Final = "damage.json"

_NOT_READ: Final = "noted earlier, and not read this time"


def read_damage(files: FileSystem, path: Path) -> tuple[Damage, ...]:
    """The damage listed in the store directory ``path``; empty if the list is not readable."""
    return read_own(files, path, DAMAGE_FILE, _parse) or ()


def _parse(found: Any) -> tuple[Damage, ...]:
    return tuple(
        Damage(
            int(row["offset"]),
            int(row["end_offset"]),
            CorruptRecord(str(row["what"]), offset=int(row["offset"])),
            unproven=bool(row["unproven"]),
            head=bytes.fromhex(row["head"]),
            to_fill=bool(row.get("to_fill")),
        )
        for row in found["damage"]
    )


def noted_before(
    directory: StoreDirectory, size_bytes: int, minimum: int, start: int
) -> tuple[Damage, ...]:
    """Listed damage of a log that begins at ``minimum``, limited to entries before ``start``."""
    return tuple(
        attrs.evolve(
            each,
            error=CorruptRecord(f"{each.error.what}; {_NOT_READ}", offset=each.offset),
            path=directory.segment(each.offset - each.offset % size_bytes),
        )
        for each in read_damage(directory.files, directory.path)
        if minimum < each.end_offset and each.offset < start
    )


def keep_damage(
    files: FileSystem, path: Path, start: int, minimum: int, found: Iterable[Damage]
) -> None:
    """Replace the entries from ``start`` on, durably; an unchanged list is not written.

    Entries before ``minimum``, the first byte of the log, are dropped. Raises ``OSError``.
    """
    before = read_damage(files, path)
    known_damage = [each for each in before if minimum < each.end_offset and each.offset < start]
    known_damage += found
    if [_row(each) for each in known_damage] == [_row(each) for each in before]:
        return
    write_own(files, path, DAMAGE_FILE, {"damage": [_row(each) for each in known_damage]}, indent=1)


def _row(damage: Damage) -> dict[str, Any]:
    return {
        "offset": damage.offset,
        "end_offset": damage.end_offset,
        "what": damage.error.what,
        "unproven": damage.unproven,
        "head": damage.head.hex(),
        "to_fill": damage.to_fill,
    }


class KnownDamage:
    """The known damage of one source; false if there is none."""

    __slots__ = ("_damage", "_source")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._damage = source.known_damage.values()

    def __bool__(self) -> bool:
        return bool(self._damage)

    def at(self, offset: int, *, verify: bool = True) -> Damage | None:
        """The damage that contains ``offset``, if any.

        :param verify: whether checksums are computed; without them, damaged records look whole
        """
        for each in self._damage:
            if each.offset <= offset < each.end_offset and (each.unproven or not verify):
                return each if self._stands(each) else None
        return None

    def rest(self, offset: int, *, verify: bool) -> Damage | None:
        """The part from ``offset`` on of the damage that contains it; ``None`` if there is none.

        Also ``None`` for damage that begins at ``offset``, since a scan from there finds it.
        """
        found = self.at(offset, verify=verify)
        return attrs.evolve(found, offset=offset) if found and found.offset < offset else None

    def _stands(self, damage: Damage) -> bool:
        """Whether the damaged bytes are unchanged."""
        return damage.is_at(read_at(self._source, damage.offset, len(damage.head)))
