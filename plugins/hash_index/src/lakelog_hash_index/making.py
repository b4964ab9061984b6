"""Creates index files: complete and allocated before they get their name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import attrs

from lakelog.files.filesystem import File, FileSystem
from lakelog_hash_index.filewriter import IndexFileWriter
from lakelog_hash_index.indexfile import IndexFile
from lakelog_hash_index.names import is_name, next_name
from lakelog_hash_index.shape import Header, IndexShape

UNFINISHED: Final = ".tmp"


@attrs.frozen
class Maker:
    """Creates and opens the files of one index.

    :ivar directory: the folder ``index`` of a store
    :ivar now: returns the local time, for names
    """

    files: FileSystem
    directory: Path
    shape: IndexShape
    now: Callable[[], datetime] = datetime.now

    def make(self, last: IndexFile | None) -> IndexFileWriter:
        """Create the file after ``last``; raises ``OSError``, and then leaves nothing behind."""
        name = next_name(self.now(), last.path.name if last else None)
        self.files.make_dir(self.directory)
        unfinished = self.directory / (name + UNFINISHED)
        try:
            self._fill(unfinished, _header_after(last))
            self.files.rename(unfinished, self.directory / name)
        except BaseException:
            with suppress(OSError):
                self.files.unlink(unfinished)
            raise
        self.files.sync_dir(self.directory)
        return self.open(IndexFile(self.files, self.directory / name, self.shape))

    def clear(self) -> None:
        """Remove incomplete files left by a crash: with a temporary name, or empty."""
        for name, length in self.files.list(self.directory):
            if name.endswith(UNFINISHED) or (is_name(name) and not length):
                self.files.unlink(self.directory / name)

    def open(self, seen: IndexFile) -> IndexFileWriter:
        """Open an existing file for appending."""
        file = self.files.open(seen.path, write=True)
        try:
            return IndexFileWriter(seen, file)
        except BaseException:
            file.close()
            raise

    def _fill(self, path: Path, header: Header) -> None:
        file = self.files.open(path, write=True, create=True)
        try:
            self._lay_out(file, header)
        finally:
            file.close()

    def _lay_out(self, file: File, header: Header) -> None:
        file.truncate(0)
        file.allocate(self.shape.slots_end)
        file.truncate(self.shape.length)
        file.write_at(0, header.pack())
        file.sync()


def _header_after(last: IndexFile | None) -> Header:
    if last is None:
        return Header()
    end = last.header()
    return Header(
        begin_timestamp_ms=end.end_timestamp_ms,
        end_timestamp_ms=end.end_timestamp_ms,
        begin_offset=end.end_offset,
        end_offset=end.end_offset,
    )
