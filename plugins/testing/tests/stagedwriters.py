"""A sound staged writer, and one for each mistake that only such writers can make."""

# ruff: noqa: N801 - the nested classes fill the attribute of their name
from __future__ import annotations

from lakelog.files.filesystem import File
from lakelog.interfaces import SegmentWriter, WriterTraits
from lakelog.message import Body


class Segment:
    """Keeps everything in memory of its own, and writes what is new at each commit."""

    def __init__(self, file: File, size_bytes: int, position: int, memory: bytearray) -> None:
        self.file = file
        self.memory = memory
        self.memory[:] = file.read_at(0, size_bytes)
        self.end = self.committed = position
        self.failure: OSError | None = None

    def write(self, position: int, data: Body) -> None:
        self.memory[position : position + len(data)] = data
        self.end = position + len(data)

    def view(self, position: int, length: int) -> memoryview:
        return memoryview(self.memory).toreadonly()[position : position + length]

    def seal(self) -> None: ...

    def commit(self) -> int:
        if self.failure is not None:
            raise self.failure
        end = self.end
        try:
            self.put_through(self.committed, end)
        except OSError as error:
            self.failure = error
            raise
        self.committed = end
        return end

    def put_through(self, start: int, end: int) -> None:
        self.file.write_at(start, bytes(self.memory[start:end]))

    def sync(self) -> None:
        self.file.sync()

    def close(self) -> None:
        self.file.close()


class SoundlyStaged:
    """Opens one kind of segment, each with memory of its own."""

    traits = WriterTraits(staged=True, zero_copy_reads=False)
    segment: type[Segment] = Segment

    def open(self, file: File, size_bytes: int, position: int) -> SegmentWriter:
        return self.segment(file, size_bytes, position, bytearray(size_bytes))


class OneBuffer(SoundlyStaged):
    """Uses its memory again while somebody looks at it."""

    memory = bytearray(1 << 16)

    def open(self, file: File, size_bytes: int, position: int) -> SegmentWriter:
        return self.segment(file, size_bytes, position, self.memory)


class Uncleaned(OneBuffer):
    """Does not clean its memory."""

    class segment(Segment):
        def __init__(self, file: File, size_bytes: int, position: int, memory: bytearray) -> None:
            super().__init__(file, size_bytes, position, bytearray(size_bytes))
            self.memory = memory


class WholeBlocksOnly(SoundlyStaged):
    """Says that all was committed, and keeps the last block."""

    class segment(Segment):
        def put_through(self, start: int, end: int) -> None:
            super().put_through(start - start % 512, end - end % 512)


class Overlong(SoundlyStaged):
    """Puts whole blocks through, whatever stands behind the end."""

    class segment(Segment):
        def put_through(self, start: int, end: int) -> None:
            whole = min(-(-end // 512) * 512, len(self.memory))
            self.file.write_at(start, bytes(self.memory[start:end]).ljust(whole - start, b"?"))


class Unaligned(SoundlyStaged):
    """Writes whole blocks, from wherever they stand in memory."""

    traits = WriterTraits(alignment_bytes=512, staged=True, zero_copy_reads=False)

    class segment(Segment):
        def put_through(self, start: int, end: int) -> None:
            first, whole = start - start % 512, min(-(-end // 512) * 512, len(self.memory))
            odd = bytearray(whole - first + 1)
            odd[1:] = self.memory[first:whole]
            self.file.write_at(first, memoryview(odd)[1:])


class LateEnd(SoundlyStaged):
    """Puts through what it saw first, and reports what it sees afterwards."""

    class segment(Segment):
        def commit(self) -> int:
            super().commit()
            return self.end


class TryingAgain(SoundlyStaged):
    """Takes a failed commit for one that can be done again."""

    class segment(Segment):
        def commit(self) -> int:
            self.failure = None
            return super().commit()


class LettingGo(SoundlyStaged):
    """Gives its memory up when the segment is sealed, and not when it is committed."""

    class segment(Segment):
        def seal(self) -> None:
            self.memory = bytearray(len(self.memory))


class LettingGoEarly(SoundlyStaged):
    """Looks at the seal behind the write, and gives up what came during it."""

    class segment(Segment):
        is_sealed = False

        def seal(self) -> None:
            self.is_sealed = True

        def commit(self) -> int:
            end = super().commit()
            if self.is_sealed:
                self.memory[end:] = bytes(len(self.memory) - end)
            return end


class OldOnlyInFile(SoundlyStaged):
    """Has nothing in memory of what was there before it."""

    class segment(Segment):
        def __init__(self, file: File, size_bytes: int, position: int, memory: bytearray) -> None:
            super().__init__(file, size_bytes, position, memory)
            self.memory[:position] = bytes(position)
