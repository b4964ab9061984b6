"""The plugin that offers the archive ``fsspec``, which stores segments before their deletion.

The hook gets only the path of a file, so the plugin remembers the archive of each store that is
open for writing, as of its last open.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.hooks import Context, Factory, Kind
from lakelog.hooks.hookspecs import hookimpl

if TYPE_CHECKING:
    from lakelog_archive.archive import ArchiveSettings, LazyArchive


@attrs.define(eq=False, repr=False)
class ArchivePlugin:
    """Archives for the stores of one process."""

    _made: dict[Path, LazyArchive] = attrs.field(factory=dict)
    _open: dict[Path, LazyArchive] = attrs.field(factory=dict)

    @hookimpl
    def lakelog_segment_sources(self) -> list[Factory]:
        """Offer ``archive = "fsspec"``."""
        summary = "keeps what is deleted from the log in a directory or at an fsspec URL"
        settings = "lakelog_archive.archive:ArchiveSettings"
        return [Factory(Kind.SEGMENT_SOURCE, "fsspec", settings, self._make, summary)]

    @hookimpl
    def lakelog_store_opening(self, path: Path, read_only: bool) -> None:
        """Use the archive made for this opening, or none, from now on."""
        if read_only:
            return
        self._open.pop(path, None)
        made = self._made.pop(path, None)
        if made is not None:
            self._open[path] = made

    @hookimpl
    def lakelog_segment_deleting(self, path: Path, start_offset: int) -> None:
        """Archive the segment; any error keeps it in the log."""
        for archive in tuple(self._open.values()):
            if archive.commitlog == path.parent:
                archive.keep(path, start_offset)

    def _make(self, settings: ArchiveSettings, context: Context) -> LazyArchive:
        from lakelog_archive.archive import LazyArchive, place_at

        place_at(settings.url)  # refuse an unusable URL before any file is touched
        archive = LazyArchive(settings, context)
        if not context.read_only:
            self._made[context.path] = archive
        return archive


plugin: Final = ArchivePlugin()
