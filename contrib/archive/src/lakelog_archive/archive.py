"""The archive of one store: takes sealed segments, proves that it has them, and gives them back.

``commitlog/NAME`` under its folder is the segment as it stood in the log, so that the folder can be
read as a store by itself; ``manifest/NAME`` is its line. The order: copied, read back and compared,
line written, and only then may the segment go. A crash at any step leaves the segment in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from lakelog.format.layout import COMMITLOG_DIR, SEGMENT_NAME_DIGITS, segment_name
from lakelog_archive.errors import ArchiveError, NotTheSame
from lakelog_archive.manifest import ManifestEntry, from_bytes, to_bytes
from lakelog_archive.place import ArchiveFolder, sha256_of

MANIFEST_DIR: Final = "manifest"


@attrs.frozen
class _Block:
    """What was fetched last."""

    start: int
    position: int
    data: bytes

    def part(self, start: int, position: int, length: int) -> bytes | None:
        """A part of it, if it has all of that."""
        at = position - self.position
        if start != self.start or at < 0 or at + length > len(self.data):
            return None
        return self.data[at : at + length]


@attrs.define(eq=False)
class Archive:
    """A :class:`lakelog.interfaces.SegmentSource`, which also takes segments in.

    :ivar place: the folder of the store
    :ivar read_bytes: how much is fetched at once where less is asked for
    """

    place: ArchiveFolder
    read_bytes: int = 1 << 20
    _last: _Block = _Block(-1, 0, b"")

    def keep(self, path: Path, start: int) -> ManifestEntry:
        """Take in the sealed segment ``path``; on return it is there, proved and durable.

        Raises :class:`~lakelog_archive.errors.NotTheSame` where another one is, and whatever the
        place raises.
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
        """Offsets of the first bytes of the segments that are proved to be there, in order."""
        names = self.place.names(MANIFEST_DIR)
        return [int(name) for name in names if len(name) == SEGMENT_NAME_DIGITS and name.isdigit()]

    def read(self, start: int, position: int, length: int) -> bytes:
        """Bytes of a segment; raises :class:`~lakelog_archive.errors.ArchiveError`."""
        part = self._last.part(start, position, length)
        if part is None:
            data = self._fetched(start, position, max(length, self.read_bytes))
            self._last = _Block(start, position, data)
            part = data[:length]
        return part

    def line(self, start: int) -> ManifestEntry | None:
        """What is known of a segment; ``None`` if it was never proved to be there."""
        content = self.place.content(_manifest(segment_name(start)))
        return None if content is None else from_bytes(content)

    def check(self, start: int) -> ManifestEntry:
        """Read all of a segment again; raises ``ArchiveError`` unless it is what was taken in."""
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
