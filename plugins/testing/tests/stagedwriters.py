"""A correct staged writer, and one for each mistake that only staged writers can make."""

# ruff: noqa: N801 - the nested classes fill the attribute of their name
from __future__ import annotations

from lakelog.files.filesystem import File
from lakelog.hooks import SegmentWriter, WriterTraits
from lakelog.message import Body


class Segment:
    """Keeps data in its own memory, and writes new bytes at each commit."""

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
    """Opens segments of one kind, each with its own memory."""

    traits = WriterTraits(staged=True, same_bytes=True)
    segment: type[Segment] = Segment

    def open(self, file: File, size_bytes: int, position: int) -> SegmentWriter:
        return self.segment(file, size_bytes, position, bytearray(size_bytes))


class OneBuffer(SoundlyStaged):
    """Reuses its memory while views of it exist."""

    memory = bytearray(1 << 16)

    def open(self, file: File, size_bytes: int, position: int) -> SegmentWriter:
        return self.segment(file, size_bytes, position, self.memory)


class Uncleaned(OneBuffer):
    """Does not zero its memory before reuse."""

    class segment(Segment):
        def __init__(self, file: File, size_bytes: int, position: int, memory: bytearray) -> None:
            super().__init__(file, size_bytes, position, bytearray(size_bytes))
            self.memory = memory


class WholeBlocksOnly(SoundlyStaged):
    """Reports everything as committed, but keeps the last block."""

    class segment(Segment):
        def put_through(self, start: int, end: int) -> None:
            super().put_through(start - start % 512, end - end % 512)


class Overlong(SoundlyStaged):
    """Writes whole blocks, including bytes after the end."""

    class segment(Segment):
        def put_through(self, start: int, end: int) -> None:
            whole = min(-(-end // 512) * 512, len(self.memory))
            self.file.write_at(start, bytes(self.memory[start:end]).ljust(whole - start, b"?"))


class Unaligned(SoundlyStaged):
    """Writes whole blocks from unaligned memory addresses."""

    traits = WriterTraits(alignment_bytes=512, staged=True, same_bytes=True)

    class segment(Segment):
        def put_through(self, start: int, end: int) -> None:
            first, whole = start - start % 512, min(-(-end // 512) * 512, len(self.memory))
            odd = bytearray(whole - first + 1)
            odd[1:] = self.memory[first:whole]
            self.file.write_at(first, memoryview(odd)[1:])


class LateEnd(SoundlyStaged):
    """Writes the end seen first, and reports the end seen afterwards."""

    class segment(Segment):
        def commit(self) -> int:
            super().commit()
            return self.end


class TryingAgain(SoundlyStaged):
    """Retries a failed commit."""

    class segment(Segment):
        def commit(self) -> int:
            self.failure = None
            return super().commit()


class LettingGo(SoundlyStaged):
    """Releases its memory at the seal instead of at the commit."""

    class segment(Segment):
        def seal(self) -> None:
            self.memory = bytearray(len(self.memory))


class LettingGoEarly(SoundlyStaged):
    """Reads the seal after the write, and loses bytes that arrived in between."""

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
    """Does not load existing bytes into its memory."""

    class segment(Segment):
        def __init__(self, file: File, size_bytes: int, position: int, memory: bytearray) -> None:
            super().__init__(file, size_bytes, position, memory)
            self.memory[:position] = bytes(position)
