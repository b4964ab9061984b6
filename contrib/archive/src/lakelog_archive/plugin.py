"""The plugin that offers the archive ``fsspec``, which stores segments before their deletion.

The hook gets only the path of a file, so the plugin remembers the archive of each store that is
open for writing, as of its last open.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
from attrs import validators

from lakelog.hooks import Context, Factory, Kind
from lakelog.hooks.hookspecs import hookimpl

if TYPE_CHECKING:
    from lakelog_archive.archive import LazyArchive


def _is_given(_settings: object, _attribute: object, url: str) -> None:
    if not url.strip():
        raise ValueError("url is empty; give a directory, or a URL such as s3://bucket/folder")


@attrs.frozen(kw_only=True)
class ArchiveSettings:
    """The location of archived segments.

    :ivar url: a directory, or an fsspec URL such as ``s3://bucket/folder``; keys and endpoints are
        in fsspec's own configuration. Each store has its own folder there
    :ivar read_bytes: smallest number of bytes to fetch at once
    """

    url: str = attrs.field(validator=_is_given)
    read_bytes: int = attrs.field(default=1 << 20, validator=validators.ge(4096))


NAME: Final = "fsspec"


@attrs.define(eq=False, repr=False)
class ArchivePlugin:
    """Archives for the stores of one process."""

    _made: dict[Path, LazyArchive] = attrs.field(factory=dict)
    _open: dict[Path, LazyArchive] = attrs.field(factory=dict)

    @hookimpl
    def lakelog_segment_sources(self) -> list[Factory]:
        """Offer ``archive = "fsspec"``."""
        summary = "keeps what is deleted from the log in a directory or at an fsspec URL"
        return [Factory(Kind.SEGMENT_SOURCE, NAME, ArchiveSettings, self._make, summary)]

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
