"""Carries out the steps of a repair; overwritten bytes are durable in quarantine before.

The caller holds the lock, and has marked the store as not closed cleanly. An interrupted step
leaves the former state, or one that the next repair detects and mends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from lakelog.files.filesystem import File, FileSystem
from lakelog.files.preallocation import SegmentMaker
from lakelog.format.layout import BLANK, MAGIC_BLANK
from lakelog.log.store_directory import StoreDirectory
from lakelog.recovery.filler import FillerMaker
from lakelog.recovery.quarantine import keep
from lakelog.recovery.repairplan import Filling, MissingRange, Stray
from lakelog.recovery.report import Aside

_WINDOW_BYTES: Final = 4 << 20


@attrs.frozen
class Acting:
    """Executes steps in one store directory."""

    directory: StoreDirectory
    maker: SegmentMaker

    def move_away(self, strays: Sequence[Stray]) -> Iterator[Aside]:
        """Move files that are not segments to quarantine."""
        files = self.directory.files
        for stray in strays:
            if stray.length:
                yield self._keep(stray.path, 0, stray.length, 0, "it is no segment")
            files.unlink(stray.path)
            files.sync_dir(stray.path.parent)

    def make_missing(self, missing: Sequence[MissingRange]) -> None:
        """Create missing segments, each with one blank record."""
        self.directory.files.make_dir(self.maker.temporary)
        for each in missing:
            file = self.maker.make(each.start_offset).file
            try:
                _write_blank(file, 0, each.size_bytes)
                file.sync()
            finally:
                file.close()

    def _keep(self, path: Path, position: int, length: int, offset: int, reason: str) -> Aside:
        files, store = self.directory.files, self.directory.path
        return keep(files, store, path, position, length, offset, reason)


def keep_gaps(directory: StoreDirectory, fillings: Iterable[Filling]) -> Iterator[Aside]:
    """Copy the gaps to quarantine, except those that are all zero."""
    for filling in fillings:
        gap, position = filling.gap, filling.gap.offset - filling.start_offset
        file = directory.files.open(filling.path)
        try:
            is_zero = _is_zero(file, position, gap.size_bytes)
        finally:
            file.close()
        if not is_zero:
            where = filling.path, position, gap.size_bytes, gap.offset
            yield keep(directory.files, directory.path, *where, gap.reason)


def fill(files: FileSystem, fillings: Iterable[Filling], fillers: FillerMaker) -> None:
    """Write the fillers in log order; the former bytes are in quarantine."""
    for filling in fillings:
        gap = filling.gap
        file = files.open(filling.path, write=True)
        try:
            if filling.to_the_end:
                _write_blank(file, gap.offset - filling.start_offset, gap.size_bytes)
            else:
                for offset, record in fillers.make(gap):
                    file.write_at(offset - filling.start_offset, record)
            file.sync()
        finally:
            file.close()


def _is_zero(file: File, position: int, length: int) -> bool:
    """Whether the bytes are all zero."""
    at = file.next_data(position)
    while at is not None and at < position + length:
        data = file.read_at(at, min(_WINDOW_BYTES, position + length - at))
        if any(data):
            return False
        at = file.next_data(at + len(data))
    return True


def _write_blank(file: File, position: int, size_bytes: int) -> None:
    file.write_at(position, BLANK.pack(size_bytes, MAGIC_BLANK))
