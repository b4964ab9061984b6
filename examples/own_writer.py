"""How does a custom writer write segment files, here with a report of slow syncs?

A writer gets each segment as a file of full length. It accesses the disk only through that file, so
that the contract kit and the crash simulator can make calls fail.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence

import attrs

import lakelog
from lakelog.files.filesystem import File
from lakelog.hooks import Context, Factory, Kind, WriterTraits
from lakelog.hooks.hookspecs import hookimpl
from lakelog.message import Body


@attrs.frozen
class TimedWriterSettings:
    """Section ``[timed-writer]``; ``slow_ms`` is how long a sync may take unreported."""

    slow_ms: int = 50


@attrs.define
class TimedSegment:
    """One open segment: written with ``pwrite``, read through a map."""

    file: File
    memory: memoryview
    end: int
    slow_ms: int

    def write(self, position: int, data: Body) -> None:
        """Write behind the last write; the file has blocks there."""
        self.file.write_at(position, data)
        self.end = position + len(data)

    def view(self, position: int, length: int) -> memoryview:
        """Return bytes of the file, without a copy; the view stays valid after a close."""
        return self.memory[position : position + length]

    def commit(self) -> int:
        """Return the end of the bytes in the page cache, which are all written bytes."""
        return self.end

    def sync(self) -> None:
        """Sync the file; an exception fails the store and every put that waits."""
        end, begun = self.end, time.perf_counter()
        self.file.sync()
        took_ms = (time.perf_counter() - begun) * 1000
        if took_ms >= self.slow_ms:
            print(f"slow: a sync up to byte {end} of {self.file.path.name}", file=sys.stderr)

    def close(self) -> None:
        """Close the file; the map is released with its last view."""
        self.file.close()


class TimedWriter:
    """Opens segments."""

    traits = WriterTraits(same_bytes=True)  # no alignment, not staged, views copy nothing

    def __init__(self, slow_ms: int) -> None:
        """Keep the limit."""
        self.slow_ms = slow_ms

    def open(self, file: File, size_bytes: int, position: int) -> TimedSegment:
        """Take over a file with ``position`` bytes of records in it."""
        memory = memoryview(file.map(size_bytes, writable=False))
        return TimedSegment(file, memory, position, self.slow_ms)


def make(settings: TimedWriterSettings, _context: Context) -> TimedWriter:
    """Make the writer when a store opens."""
    return TimedWriter(settings.slow_ms)


@hookimpl
def lakelog_writers() -> Sequence[Factory]:
    """Offer it; this module is the plugin."""
    return [Factory(Kind.WRITER, "timed-writer", TimedWriterSettings, make)]


def main(folder: str) -> None:
    """Put messages that are synced one by one, and have every sync reported."""
    with lakelog.open(
        folder,
        plugins=[sys.modules[__name__]],
        writer="timed-writer",
        timed_writer={"slow_ms": 0},
        flush="inline",
        segment_size_bytes="1MiB",
    ) as store:
        for number in range(3):
            put = store.put(lakelog.Message("orders", b"order %d" % number))
            print("durable:", bytes(store.look_up(put.physical_offset).body).decode())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(f"{temporary}/store")
