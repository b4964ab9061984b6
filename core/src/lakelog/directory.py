"""What stands in a directory before it is opened: whether it is a store, and can be owned.

Nothing in here changes a byte.
"""

from __future__ import annotations

from pathlib import Path

import attrs

from lakelog.errors import BadSegment, NotAStore, StoreError
from lakelog.files import FileSystem
from lakelog.layout import COMMITLOG_DIR, LOCK_FILE, OWN_DIR, segment_name
from lakelog.segmentdir import hindrances, problems
from lakelog.settings.model import StoreSettings


@attrs.frozen
class StoreDirectory:
    """:ivar path: the store directory; :ivar commitlog: where its segments stand."""

    files: FileSystem
    path: Path
    commitlog: Path

    @classmethod
    def of(cls, files: FileSystem, path: Path, core: StoreSettings) -> StoreDirectory:
        """The directory of a store with these settings."""
        return cls(files, path, path / (core.commitlog_path or COMMITLOG_DIR))

    def is_new(self) -> bool:
        """Whether no store is there yet, and one can be made.

        Raises :class:`~lakelog.errors.NotAStore` if something else is there.
        """
        if self.commitlog.is_dir():
            return False
        if not self.path.exists():
            return True
        if not self.path.is_dir():
            raise NotAStore("this is a file; a store is a directory", path=self.path)
        found = sorted(each.name for each in self.path.iterdir())
        if set(found) - {OWN_DIR, LOCK_FILE, "lost+found"}:
            raise NotAStore(
                f"the directory holds {', '.join(found[:3])} and no {self.commitlog.name}/; "
                "give an empty directory, or one that RocketMQ or lakelog wrote",
                path=self.path,
            )
        return True

    def check_readable(self) -> None:
        """Raise :class:`~lakelog.errors.NotAStore` unless a store is there."""
        if self.is_new():
            raise NotAStore("no store is here; is the path right?", path=self.path)

    def check_segments(self, size_bytes: int) -> None:
        """Raise :class:`~lakelog.errors.BadSegment` where not even a recovery can go on.

        That is over files that are no segments, segments of another size, and missing ones.
        Changes nothing; wrong lengths alone are for the recovery to mend.
        """
        for problem in hindrances(self.commitlog, self.files.list(self.commitlog), size_bytes):
            raise problem

    def problems(self, size_bytes: int) -> list[BadSegment]:
        """Everything odd about the segments."""
        return problems(self.commitlog, self.files.list(self.commitlog), size_bytes)

    def same_file_system(self) -> bool:
        """Whether the segments stand on the file system of the store directory."""
        return self.commitlog.stat().st_dev == self.path.stat().st_dev

    def segment(self, start_offset: int) -> Path:
        """Where the segment that starts at ``start_offset`` stands."""
        return self.commitlog / segment_name(start_offset)


def readable(error: OSError, path: Path) -> StoreError:
    """The error for a directory that the operating system does not let us read or write."""
    return StoreError(
        f"{error.strerror or error}; check permissions and space", path=error.filename or path
    )
