"""Carries out the steps of a repair; overwritten bytes are durable in quarantine before.

The caller holds the lock, and has marked the store as not closed cleanly. An interrupted step
leaves the former state, or one that the next repair detects and mends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from lakelog.files.preallocation import SegmentMaker
from lakelog.log.store_directory import StoreDirectory
from lakelog.recovery.filler import write_blank
from lakelog.recovery.quarantine import keep
from lakelog.recovery.report import Aside
from lakelog.recovery.tails import Tail
from lakelog_doctor.repair_plan import MissingRange, Stray


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
                tail = Tail(stray.path, 0, stray.length, 0, "it is no segment")
                yield keep(files, self.directory.path, tail)
            files.unlink(stray.path)
            files.sync_dir(stray.path.parent)

    def make_missing(self, missing: Sequence[MissingRange]) -> None:
        """Create missing segments, each with one blank record."""
        self.directory.files.make_dir(self.maker.temporary)
        for each in missing:
            file = self.maker.make(each.start_offset).file
            try:
                write_blank(file, 0, each.size_bytes)
                file.sync()
            finally:
                file.close()
