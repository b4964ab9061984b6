"""The archive of a store that is being opened; a new store gets its UUID later."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

from lakelog.errors import SettingsError
from lakelog.files.state.identity import read_identity
from lakelog.interfaces import Context
from lakelog_archive.archive import Archive
from lakelog_archive.archive_folder import ArchiveFolder
from lakelog_archive.errors import ArchiveError
from lakelog_archive.settings import ArchiveSettings


@attrs.define(eq=False)
class LazyArchive:
    """A :class:`lakelog.interfaces.SegmentSource`."""

    settings: ArchiveSettings
    context: Context
    _archive: Archive | None = None

    @property
    def commitlog(self) -> Path:
        """The folder of the store's segments."""
        return self.context.core.commitlog(self.context.path)

    def keep(self, path: Path, start: int) -> None:
        """Store a segment; see :meth:`lakelog_archive.archive.Archive.keep`.

        Raises :class:`~lakelog_archive.errors.ArchiveError` also if the store has no UUID.
        """
        archive = self._found()
        if archive is None:
            raise ArchiveError("it has no UUID to archive it under", path=self.context.path)
        archive.keep(path, start)

    def starts(self) -> Sequence[int]:
        """Start offsets of the archived segments, in order."""
        archive = self._found()
        return [] if archive is None else archive.starts()

    def read(self, start: int, position: int, length: int) -> bytes:
        """Read a range of an archived segment; see :meth:`lakelog_archive.archive.Archive.read`.

        Raises :class:`~lakelog_archive.errors.ArchiveError` also if the store has no UUID.
        """
        archive = self._found()
        if archive is None:
            raise ArchiveError("nothing of it was archived", path=self.context.path)
        return archive.read(start, position, length)

    def _found(self) -> Archive | None:
        """The archive; ``None`` while the store has no UUID, as then nothing was archived."""
        if self._archive is None:
            identity = read_identity(self.context.files, self.context.path)
            if identity is None:
                return None
            place = place_at(f"{self.settings.url.rstrip('/')}/{identity.uuid}")
            self._archive = Archive(place, self.settings.read_bytes)
        return self._archive


def place_at(url: str) -> ArchiveFolder:
    """The folder at ``url``; raises :class:`~lakelog.errors.SettingsError`."""
    try:
        return ArchiveFolder.of(url)
    except (ImportError, ValueError) as error:
        raise SettingsError(f"{url!r} cannot be used: {error}", key="fsspec.url") from error
