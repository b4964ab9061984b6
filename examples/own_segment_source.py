"""How are old segments read from another place, here from a zip file?

A segment source serves bytes of segments that are no longer in the log, to reads by offset.
The package contrib/archive has a source that also copies segments before their deletion.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import attrs

import lakelog
from lakelog.errors import StoreError
from lakelog.format.layout import segment_name
from lakelog.hooks import Context, Factory, Kind
from lakelog.hooks.hookspecs import hookimpl


@attrs.frozen
class ZippedSettings:
    """Section ``[zipped]``; ``file`` has segments under their names, uncompressed for speed."""

    file: str


@attrs.define
class ZippedSegments:
    """Reads segments of a zip file; opens it for each read, as reads come from any thread."""

    file: Path

    def starts(self) -> Sequence[int]:
        """Return the start offset of each segment, in order."""
        if not self.file.exists():
            return []
        with ZipFile(self.file) as zipped:
            return sorted(int(name) for name in zipped.namelist())

    def read(self, start: int, position: int, length: int) -> bytes:
        """Return bytes of one segment; raises ``StoreError`` with the place for any failure."""
        try:
            with ZipFile(self.file) as zipped, zipped.open(segment_name(start)) as segment:
                segment.seek(position)
                return segment.read(length)
        except (OSError, KeyError, BadZipFile) as error:
            raise StoreError(f"segment {start} cannot be read: {error}", path=self.file) from error


def make(settings: ZippedSettings, _context: Context) -> ZippedSegments:
    """Make the source when a store opens; a reader in another process makes one, too."""
    return ZippedSegments(Path(settings.file))


@hookimpl
def lakelog_segment_sources() -> Sequence[Factory]:
    """Offer it; this module is the plugin."""
    return [Factory(Kind.SEGMENT_SOURCE, "zipped", ZippedSettings, make)]


@hookimpl
def lakelog_segment_deleting(path: Path, start_offset: int) -> None:
    """Copy a segment to the zip file before its deletion; an exception would keep the segment."""
    with ZipFile(path.parents[2] / "old.zip", "a") as zipped:
        zipped.write(path, segment_name(start_offset))


def main(folder: str) -> None:
    """Fill a store, let the cleaner delete all but two segments, and read the first message."""
    with lakelog.open(
        f"{folder}/store",
        plugins=[sys.modules[__name__]],
        archive="zipped",
        zipped={"file": f"{folder}/old.zip"},
        cleaner="retention",
        retention={"max_segments": 2},
        segment_size_bytes="64KiB",
    ) as store:
        for number in range(500):
            store.put(lakelog.Message("orders", b"order %d " % number * 40, queue_id=0))
        store.wait_dispatched()
        print("deleted:", len(store.delete_expired().deleted), "segments")
        print(
            "the log begins at", store.min_offset, "and the oldest offset is", store.oldest_offset
        )
        print("first message:", bytes(store.look_up(0).body[:7]).decode())
        print("messages from offset 0 on:", sum(1 for _ in store.scan(start=0)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(temporary)
