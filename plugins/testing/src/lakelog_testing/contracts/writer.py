"""Contract tests for writers: segment files, views and failures.

Writers must reach the disk only through the ``File`` that they receive. Otherwise failures injected
by a test or by the crash simulator have no effect.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from lakelog.files.filesystem import RealFileSystem
from lakelog.hooks import Extendable, Sealable, SegmentWriter, Writer
from lakelog.registry import check_object
from lakelog_testing.faultyfile import FaultyFile, assert_same
from lakelog_testing.threads import beside


def open_files(pid: int | None = None) -> list[tuple[int, str]]:
    """Descriptor and name of each open file, by default of this process.

    Names are the kernel's: ``socket:[1]``; that of a deleted file ends in `` (deleted)``.
    Descriptors that vanish meanwhile, such as that of the listing itself, are skipped. Raises
    ``FileNotFoundError`` if there is no such process. Source: ``proc(5)``, ``/proc/PID/fd``.
    """
    folder = Path(f"/proc/{os.getpid() if pid is None else pid}/fd")
    found = list[tuple[int, str]]()
    for each in os.listdir(folder):
        with suppress(FileNotFoundError):
            found.append((int(each), os.readlink(folder / each)))
    return found


def open_in(folder: Path, pid: int | None = None) -> list[str]:
    """Names of the open files in a folder, at any depth, or of the file ``folder`` itself."""
    place = os.path.realpath(folder)
    inside = (place, place + " (deleted)")
    names = [name for _, name in open_files(pid)]
    return [name for name in names if name in inside or name.startswith(place + os.sep)]


STEP_BYTES: Final = 4096
"""Allocation step in bytes, unless the writer's alignment is larger."""


class Stepwise:
    """A segment writer whose file is allocated in steps, as in a store."""

    def __init__(self, writer: Writer, file: FaultyFile, size_bytes: int, position: int) -> None:
        self._inner = writer.open(file, size_bytes, position)
        self._size_bytes = size_bytes
        self._file = file
        self._step_bytes = max(STEP_BYTES, writer.traits.alignment_bytes)
        self._end = 0
        self._is_closed = False
        self.view = self._inner.view
        self.commit = self._inner.commit
        self.sync = self._inner.sync

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Allocate the required blocks, then write."""
        end = position + len(data)
        if end > self._end:
            self._end = min(-(-end // self._step_bytes) * self._step_bytes, self._size_bytes)
            self._file.allocate(self._end)
            if isinstance(self._inner, Extendable):
                self._inner.extend(position, self._end)
        self._inner.write(position, data)

    def seal(self) -> None:
        """Seal the segment, if the writer supports it."""
        if isinstance(self._inner, Sealable):
            self._inner.seal()

    def finish(self) -> None:
        """Finish a full segment as a store does."""
        self.seal()
        self.commit()
        self.sync()
        self.close()

    def close(self) -> None:
        """Close the segment, once."""
        if not self._is_closed:
            self._is_closed = True
            self._inner.close()

    def fails(self, position: int = 0) -> bool:
        """Whether a write at ``position``, or its commit or sync, fails."""
        try:
            self.write(position, b"record" * 100)
            self.commit()
            self.sync()
        except OSError:
            return True
        return False


def has_data(path: Path, position: int) -> bool:
    """Whether a file has data from ``position`` on, including written zeros."""
    with path.open("rb") as file, suppress(OSError):
        return os.lseek(file.fileno(), position, os.SEEK_DATA) >= position
    return False


SIZE = 1 << 16
"""Length of the segment in these tests."""


class WriterContract:
    """Subclass it and define :meth:`make`; each test creates its own writer."""

    def make(self) -> Writer:
        """Create a writer."""
        raise NotImplementedError

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """Path of the segment file."""
        return tmp_path / "00000000000000000000"

    @pytest.fixture
    def file(self, path: Path) -> FaultyFile:
        """A segment file of full length without allocated blocks, open for its writer."""
        return _made(path)

    @pytest.fixture
    def segment(self, file: FaultyFile) -> Iterator[Stepwise]:
        """An empty segment of a new writer; closed after the test, if it is not."""
        segment = opened(self.make(), file)
        yield segment
        segment.close()

    # --- kinds and traits ---

    def test_it_has_the_methods_of_its_kind(self, file: FaultyFile) -> None:
        writer = self.make()
        assert check_object(writer, Writer) is None
        segment: SegmentWriter = writer.open(file, SIZE, 0)
        assert check_object(segment, SegmentWriter) is None
        segment.close()

    def test_its_alignment_is_a_power_of_two(self) -> None:
        alignment = self.make().traits.alignment_bytes
        assert alignment > 0
        assert alignment & (alignment - 1) == 0

    def test_writes_that_reach_the_device_are_aligned(self, file: FaultyFile) -> None:
        writer = self.make()
        segment = opened(writer, file)
        _fill(segment, random.Random(3))
        segment.commit()
        segment.sync()
        segment.close()
        unit = writer.traits.alignment_bytes
        assert [write for write in file.writes if write[0] % unit or write[1] % unit] == []
        assert [address for address in file.addresses if address % unit] == []

    # --- writing and reading ---

    def test_what_is_written_can_be_viewed_at_once(self, segment: Stepwise) -> None:
        expected = _fill(segment, random.Random(1))
        assert_same(bytes(segment.view(0, len(expected))), expected)

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_any_bytes_can_be_written(
        self, segment: Stepwise, kind: Callable[[bytes], bytes | bytearray | memoryview]
    ) -> None:
        segment.write(0, kind(b"record"))
        segment.write(6, kind(b""))
        assert_same(bytes(segment.view(0, 6)), b"record")

    def test_what_was_given_to_write_may_be_reused_afterwards(self, segment: Stepwise) -> None:
        data = bytearray(b"record")
        segment.write(0, data)
        data[:] = b"other!"
        assert_same(bytes(segment.view(0, 6)), b"record")

    def test_the_first_and_the_last_byte_of_the_segment(
        self, segment: Stepwise, path: Path
    ) -> None:
        segment.write(0, b"\x01" * (SIZE - 1))
        segment.write(SIZE - 1, b"\x02")
        assert_same(bytes(segment.view(SIZE - 2, 2)), b"\x01\x02")
        assert len(segment.view(0, SIZE)) == SIZE
        assert len(segment.view(SIZE, 0)) == 0
        assert segment.commit() == SIZE
        segment.sync()
        segment.close()
        assert_same(path.read_bytes(), b"\x01" * (SIZE - 1) + b"\x02")

    def test_records_that_were_there_stay(self, file: FaultyFile, path: Path) -> None:
        old = random.Random(5).randbytes(5_000)
        file.write_at(0, old)
        file.writes.clear()
        segment = opened(self.make(), file, len(old))
        assert_same(bytes(segment.view(0, len(old))), old)
        segment.write(len(old), b"new")
        assert_same(bytes(segment.view(len(old) - 2, 5)), old[-2:] + b"new")
        assert segment.commit() == len(old) + 3
        segment.sync()
        segment.close()
        assert_same(path.read_bytes()[: len(old) + 3], old + b"new")

    def test_the_file_keeps_its_length_and_is_zero_behind(
        self, segment: Stepwise, path: Path
    ) -> None:
        segment.write(0, b"record")
        segment.commit()
        segment.sync()
        segment.close()
        assert_same(path.read_bytes(), b"record".ljust(SIZE, b"\x00"))

    # --- views ---

    def test_views_are_flat_runs_of_bytes_that_nobody_can_change(self, segment: Stepwise) -> None:
        view = segment.view(10, 20)
        assert (view.format, view.ndim, view.nbytes) == ("B", 1, 20)
        assert view.readonly

    def test_a_view_stays_right_when_more_is_written(self, segment: Stepwise) -> None:
        segment.write(0, b"first")
        view = segment.view(0, 5)
        more = _fill(segment, random.Random(2), start=5)
        segment.commit()
        assert_same(bytes(segment.view(5, 5)), more[:5])
        assert_same(bytes(view), b"first")

    def test_a_view_stays_right_after_close_and_unlink(self, file: FaultyFile, path: Path) -> None:
        segment = opened(self.make(), file)
        expected = _fill(segment, random.Random(4))
        segment.commit()
        view = segment.view(0, len(expected))
        path.unlink()
        assert_same(bytes(view), expected)
        segment.close()
        del segment
        gc.collect()
        assert_same(bytes(view), expected)

    def test_close_lets_go_of_the_file(self, file: FaultyFile, path: Path) -> None:
        segment = opened(self.make(), file)
        segment.write(0, b"record")
        view = segment.view(0, 6)
        assert open_in(path)
        segment.close()
        del segment, view
        gc.collect()
        assert not open_in(path)

    def test_views_of_earlier_segments_stay_right(self, tmp_path: Path) -> None:
        """Memory that a writer reuses must not be visible through older views."""
        writer, views, expected = self.make(), [], []
        for number in range(7):
            segment = opened(writer, _made(tmp_path / f"{number}"))
            expected.append(_fill(segment, random.Random(number)))
            if number % 2 == 0:  # keep and release views alternately
                views.append(segment.view(0, len(expected[-1])))
            segment.finish()
        for view, due in zip(views, expected[::2], strict=True):
            assert_same(view, due)

    def test_nothing_of_earlier_segments_is_seen(self, tmp_path: Path) -> None:
        writer = self.make()
        for number in range(7):
            path = tmp_path / f"{number}"
            segment = opened(writer, _made(path))
            assert_same(bytes(segment.view(0, SIZE)), bytes(SIZE))
            segment.write(0, b"%d" % number * (SIZE - 600 * number))
            assert_same(bytes(segment.view(SIZE - 600 * number, 600 * number)), bytes(600 * number))
            segment.finish()
            assert_same(path.read_bytes()[SIZE - 600 * number :], bytes(600 * number))

    # --- commits ---

    def test_others_see_what_was_committed(self, segment: Stepwise, path: Path) -> None:
        expected = _fill(segment, random.Random(6))
        if not self.make().traits.staged:
            assert_same(path.read_bytes()[: len(expected)], expected)
        assert segment.commit() == len(expected)
        assert_same(path.read_bytes()[: len(expected)], expected)

    def test_many_small_commits(self, segment: Stepwise, path: Path) -> None:
        """An incomplete block is written repeatedly, and only zeros follow it."""
        choose, written = random.Random(7), b""
        for _ in range(50):
            piece = choose.randbytes(choose.choice((1, 30, 300, 3000)))
            segment.write(len(written), piece)
            written += piece
            assert segment.commit() == len(written)
            assert_same(path.read_bytes(), written.ljust(SIZE, b"\x00"))
            assert_same(bytes(segment.view(0, len(written))), written)

    def test_views_reach_over_the_end_of_what_was_committed(self, file: FaultyFile) -> None:
        old = random.Random(8).randbytes(5_000)
        file.write_at(0, old)
        segment = opened(self.make(), file, len(old))
        segment.write(len(old), b"first")
        segment.commit()
        segment.write(len(old) + 5, b"second" * 2_000)
        expected = old + b"first" + b"second" * 2_000
        for position in (0, 4_000, len(old) - 1, len(old), len(old) + 3, len(old) + 5, 16_000):
            assert_same(
                bytes(segment.view(position, len(expected) - position)), expected[position:]
            )
        segment.close()

    def test_a_commit_covers_what_was_written_before_it(
        self, segment: Stepwise, path: Path
    ) -> None:
        """While another thread continues to write."""
        expected = random.Random(9).randbytes(SIZE)
        ends: list[int] = []

        def write() -> None:
            for position in range(0, SIZE, 97):
                segment.write(position, expected[position : position + 97])
                ends.append(min(position + 97, SIZE))

        with beside(write) as writing:
            while not writing.done():
                least = ends[-1] if ends else 0
                committed = segment.commit()
                assert committed >= least
                assert_same(path.read_bytes()[:committed], expected[:committed])
            writing.result()
        assert segment.commit() == SIZE
        assert_same(path.read_bytes(), expected)

    def test_what_comes_during_a_commit_is_not_counted(
        self, segment: Stepwise, file: FaultyFile, path: Path
    ) -> None:
        segment.write(0, b"first")
        file.meanwhile = lambda: segment.write(5, b"second")
        committed = segment.commit()
        assert_same(path.read_bytes()[:committed], b"firstsecond"[:committed])
        end = 11 if file.meanwhile is None else 5
        file.meanwhile = None
        assert segment.commit() == end
        assert_same(path.read_bytes(), b"firstsecond"[:end].ljust(SIZE, b"\x00"))

    def test_a_full_segment_is_read_on(self, segment: Stepwise, path: Path) -> None:
        """Buffers may be released once the segment is sealed and committed."""
        expected = _fill(segment, random.Random(10))
        view = segment.view(3, 1_000)
        segment.seal()
        assert_same(bytes(segment.view(0, len(expected))), expected)
        assert segment.commit() == len(expected)
        assert segment.commit() == len(expected)
        assert_same(bytes(segment.view(0, SIZE)), expected.ljust(SIZE, b"\x00"))
        assert_same(bytes(view), expected[3:1_003])
        segment.sync()
        segment.close()
        assert_same(path.read_bytes(), expected.ljust(SIZE, b"\x00"))

    def test_a_roll_in_the_middle_of_a_commit_loses_nothing(
        self, segment: Stepwise, file: FaultyFile, path: Path
    ) -> None:
        """Last bytes and seal arrive during a commit: the next commit writes the rest.

        The store's sync does that before it closes the segment.
        """
        segment.write(0, b"first")

        def roll() -> None:
            segment.write(5, b"second")
            segment.seal()

        file.meanwhile = roll
        segment.commit()
        if file.meanwhile is not None:  # the commit wrote nothing
            file.meanwhile = None
            roll()
        assert_same(bytes(segment.view(0, 11)), b"firstsecond")
        assert segment.commit() == 11
        assert_same(bytes(segment.view(0, 11)), b"firstsecond")
        segment.sync()
        segment.close()
        assert_same(path.read_bytes(), b"firstsecond".ljust(SIZE, b"\x00"))

    def test_a_failed_commit_is_an_os_error_for_good(
        self, segment: Stepwise, file: FaultyFile
    ) -> None:
        """Bytes of a failed commit are neither reported as committed nor written again."""
        segment.write(0, b"record")
        assert segment.commit() == 6
        file.failing.add("write_at")
        failed = segment.fails(6)
        file.failing.clear()
        if failed and self.make().traits.staged:
            with pytest.raises(OSError, match="fails"):
                segment.commit()

    # --- the disk ---

    def test_nothing_is_touched_that_has_no_blocks(self, file: FaultyFile, path: Path) -> None:
        """Neither by a write nor by a writable map: on a full disk that raises SIGBUS."""
        old = random.Random(11).randbytes(5_000)
        file.allocate(len(old))
        file.write_at(0, old)
        segment, end = opened(self.make(), file, len(old)), len(old)
        for length in (1, 3_000, 5_000, 8_192, 20_000):
            segment.write(end, bytes(length))
            end += length
            assert segment.commit() == end
            segment.sync()
            assert_same(bytes(segment.view(0, len(old))), old)
            assert file.trespasses == []
            assert not has_data(path, -(-file.allocated_end // STEP_BYTES) * STEP_BYTES)
        segment.close()

    def test_a_sync_reaches_the_disk(self, segment: Stepwise, file: FaultyFile) -> None:
        segment.write(0, b"record")
        segment.commit()
        before = file.syncs
        segment.sync()
        assert file.syncs > before

    def test_a_failed_sync_is_an_os_error(self, segment: Stepwise, file: FaultyFile) -> None:
        segment.write(0, b"record")
        segment.commit()
        file.failing.add("sync")
        with pytest.raises(OSError, match="fails"):
            segment.sync()
        file.failing.clear()

    def test_a_failed_write_is_an_os_error_by_the_sync(
        self, segment: Stepwise, file: FaultyFile
    ) -> None:
        file.failing.add("write_at")
        failed = segment.fails()
        file.failing.clear()
        assert failed or not file.writes
        segment.close()


def _made(path: Path) -> FaultyFile:
    file = FaultyFile(RealFileSystem().open(path, write=True, create=True))
    file.truncate(SIZE)
    return file


def opened(writer: Writer, file: FaultyFile, position: int = 0) -> Stepwise:
    """The segment in ``file``, which has bytes up to ``position``."""
    return Stepwise(writer, file, SIZE, position)


def _fill(segment: Stepwise, choose: random.Random, start: int = 0) -> bytes:
    """Write pieces of all sizes back to back from ``start``; returns the written bytes."""
    written = bytearray()
    for _ in range(60):
        piece = choose.randbytes(choose.choice((1, 7, 91, 511, 512, 513, 1000)))
        segment.write(start + len(written), piece)
        written += piece
    return bytes(written)
