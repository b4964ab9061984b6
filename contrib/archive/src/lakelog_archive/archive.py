"""The archive of one store: copies sealed segments, verifies the copies, and reads them.

``commitlog/NAME`` in its folder is the segment as in the log, so that the folder can be read as a
store; ``manifest/NAME`` is its manifest entry. A segment is copied, read back and compared, the
entry is written, and only then may the segment be deleted. A crash at any step leaves the segment
in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from lakelog.format.layout import COMMITLOG_DIR, SEGMENT_NAME_DIGITS, segment_name
from lakelog_archive.archive_folder import ArchiveFolder, sha256_of
from lakelog_archive.errors import ArchiveError, NotTheSame
from lakelog_archive.manifest import ManifestEntry, from_bytes, to_bytes

MANIFEST_DIR: Final = "manifest"


@attrs.frozen
class _Block:
    """The range of a segment that was fetched last.

    :ivar start: offset of the segment in the log
    :ivar position: first byte of the range, from the start of the segment
    :ivar data: the bytes
    """

    start: int
    position: int
    data: bytes

    def part(self, start: int, position: int, length: int) -> bytes | None:
        """A part of the bytes, if they contain all of it."""
        at = position - self.position
        if start != self.start or at < 0 or at + length > len(self.data):
            return None
        return self.data[at : at + length]


@attrs.define(eq=False)
class Archive:
    """A :class:`lakelog.interfaces.SegmentSource` that also stores segments.

    :ivar place: the folder of the store
    :ivar read_bytes: smallest number of bytes to fetch at once
    """

    place: ArchiveFolder
    read_bytes: int = 1 << 20
    _last: _Block = _Block(-1, 0, b"")

    def keep(self, path: Path, start: int) -> ManifestEntry:
        """Store the sealed segment ``path``; on return the copy is verified and durable.

        Raises :class:`~lakelog_archive.errors.NotTheSame` if another segment is there,
        :class:`~lakelog_archive.errors.ArchiveError` if the copy differs when it is read back, and
        any error of the folder.
        """
        name, line = segment_name(start), ManifestEntry(start, *sha256_of(path))
        known = self.line(start)
        if known is not None and known != line:
            raise NotTheSame(
                f"a segment that starts at {start} was archived already, with sha256 "
                f"{known.sha256} over {known.size} bytes; this one has {line.sha256} over "
                f"{line.size}: it is of another store with the same UUID, or was changed since. "
                "Give this store another fsspec.url",
                path=path,
            )
        if known is None or self._found(name) != (line.size, line.sha256):
            self.place.copy_in(path, _data(name))
            self._prove(path, name, line)
            self.place.write(_manifest(name), to_bytes(line))
        return line

    def starts(self) -> Sequence[int]:
        """Start offsets of the verified segments, in order."""
        names = self.place.names(MANIFEST_DIR)
        return [int(name) for name in names if len(name) == SEGMENT_NAME_DIGITS and name.isdigit()]

    def read(self, start: int, position: int, length: int) -> bytes:
        """Read a range of the segment that starts at the offset ``start``.

        :param position: first byte, from the start of the segment
        :param length: number of bytes
        Raises :class:`~lakelog_archive.errors.ArchiveError` if it cannot be read.
        """
        part = self._last.part(start, position, length)
        if part is None:
            data = self._fetched(start, position, max(length, self.read_bytes))
            self._last = _Block(start, position, data)
            part = data[:length]
        return part

    def line(self, start: int) -> ManifestEntry | None:
        """The manifest entry of a segment; ``None`` if it has no verified copy."""
        content = self.place.content(_manifest(segment_name(start)))
        return None if content is None else from_bytes(content)

    def check(self, start: int) -> ManifestEntry:
        """Read all of a segment again; raises ``ArchiveError`` unless it matches its entry."""
        line = self.line(start)
        name = segment_name(start)
        if line is None:
            raise ArchiveError("no such segment was archived", path=self._shown(name))
        self._prove(None, name, line)
        return line

    def _fetched(self, start: int, position: int, length: int) -> bytes:
        name = segment_name(start)
        try:
            return self.place.read(_data(name), position, length)
        except (OSError, ValueError) as error:
            raise ArchiveError(
                f"{length} bytes from position {position} cannot be read back "
                f"({type(error).__name__}: {error})",
                path=self._shown(name),
            ) from error

    def _prove(self, path: Path | None, name: str, line: ManifestEntry) -> None:
        found = self._found(name)
        if found != (line.size, line.sha256):
            was = f"; {path} stays where it is" if path is not None else ""
            what = "nothing" if found is None else f"{found[0]} bytes with sha256 {found[1]}"
            raise ArchiveError(
                f"expected {line.size} bytes with sha256 {line.sha256}, read back {what}{was}",
                path=self._shown(name),
            )

    def _found(self, name: str) -> tuple[int, str] | None:
        try:
            return self.place.sha256(_data(name))
        except FileNotFoundError:
            return None

    def _shown(self, name: str) -> str:
        return f"{self.place.name}/{_data(name)}"


def _data(name: str) -> str:
    return f"{COMMITLOG_DIR}/{name}"


def _manifest(name: str) -> str:
    return f"{MANIFEST_DIR}/{name}"
