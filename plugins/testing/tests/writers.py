"""A correct writer, and one for each mistake that the kit must find."""

# ruff: noqa: N801 - the nested classes fill the attribute of their name
from __future__ import annotations

import os
from contextlib import suppress

from lakelog.files.filesystem import File
from lakelog.interfaces import SegmentWriter, WriterTraits
from lakelog.message import Body


class Segment:
    """Writes to the file directly, and reads it back."""

    def __init__(self, file: File, size_bytes: int, position: int) -> None:
        self.file = file
        self.size_bytes = size_bytes
        self.end = position

    def write(self, position: int, data: Body) -> None:
        self.file.write_at(position, data)
        self.end = max(self.end, position + len(data))

    def view(self, position: int, length: int) -> memoryview:
        return memoryview(self.file.read_at(position, length))

    def commit(self) -> int:
        return self.end

    def sync(self) -> None:
        self.file.sync()

    def close(self) -> None:
        self.file.close()


class Sound:
    """Opens segments of one kind."""

    traits = WriterTraits(zero_copy_reads=False)
    segment: type[Segment] = Segment

    def open(self, file: File, size_bytes: int, position: int) -> SegmentWriter:
        return self.segment(file, size_bytes, position)


class NotZeroCopy(Sound):
    traits = WriterTraits(zero_copy_reads=True)


class NotAligned(Sound):
    traits = WriterTraits(alignment_bytes=512, zero_copy_reads=False)


class OddAlignment(Sound):
    traits = WriterTraits(alignment_bytes=3, zero_copy_reads=False)


class Hidden(Sound):
    """Keeps written bytes in memory without declaring itself staged."""

    class segment(Segment):
        kept = b""

        def write(self, position: int, data: Body) -> None:
            self.kept += bytes(data)
            self.end = position + len(data)

        def view(self, position: int, length: int) -> memoryview:
            return memoryview(self.kept[position : position + length])


class Late(Sound):
    """Keeps a reference to the given buffer instead of a copy."""

    class segment(Segment):
        kept: Body = b""

        def write(self, position: int, data: Body) -> None:
            self.kept = data

        def view(self, position: int, length: int) -> memoryview:
            return memoryview(self.kept)


class Growing(Sound):
    """Writes past the end."""

    class segment(Segment):
        def close(self) -> None:
            self.file.write_at(self.size_bytes, b"more")
            super().close()


class Writable(Sound):
    """Lets readers change the log."""

    class segment(Segment):
        def view(self, position: int, length: int) -> memoryview:
            return memoryview(bytearray(self.file.read_at(position, length)))


class Released(Sound):
    """Invalidates views at close."""

    class segment(Segment):
        def view(self, position: int, length: int) -> memoryview:
            self.given = super().view(position, length)
            return self.given

        def close(self) -> None:
            self.given.release()
            super().close()


class Leaking(Sound):
    """Leaks the descriptor."""

    class segment(Segment):
        def close(self) -> None: ...


class NeverSyncing(Sound):
    """Does not sync."""

    class segment(Segment):
        def sync(self) -> None: ...


class Swallowing(Sound):
    """Ignores failures."""

    class segment(Segment):
        def write(self, position: int, data: Body) -> None:
            with suppress(OSError):
                super().write(position, data)

        def sync(self) -> None:
            with suppress(OSError):
                super().sync()


class Forgetting(Sound):
    """Always starts at the front."""

    class segment(Segment):
        def __init__(self, file: File, size_bytes: int, position: int) -> None:
            super().__init__(file, size_bytes, position)
            file.write_at(0, bytes(position))


class Reusing(Sound):
    """Returns views of the same memory to every reader."""

    class segment(Segment):
        memory = bytearray(1 << 16)

        def view(self, position: int, length: int) -> memoryview:
            self.memory[:length] = self.file.read_at(position, length)
            return memoryview(self.memory)[:length].toreadonly()


class MapsAll(Sound):
    """Maps the whole segment for writing, allocated or not."""

    class segment(Segment):
        def __init__(self, file: File, size_bytes: int, position: int) -> None:
            super().__init__(file, size_bytes, position)
            self.map = file.map(size_bytes, writable=True)

        def write(self, position: int, data: Body) -> None:
            self.end = position + len(data)
            self.map[position : self.end] = data


class Zeroing(Sound):
    """Zeroes the following bytes, bypassing the given file."""

    class segment(Segment):
        def write(self, position: int, data: Body) -> None:
            super().write(position, data)
            os.pwrite(self.file.fileno(), bytes(8192), self.end)
