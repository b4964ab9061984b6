"""What every writer must do with a segment file, its views and its failures.

Writers reach the disk through the :class:`~lakelog.files.File` that they are handed, or a failure
that a test or the crash simulator makes there would pass unseen.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from lakelog.files import RealFileSystem
from lakelog.interfaces import SegmentWriter, Writer
from lakelog.registry import check_object
from lakelog.testing.faultyfile import FaultyFile

SIZE = 1 << 16
"""Length of the segment in these tests."""


class WriterContract:
    """Subclass it, and say in :meth:`make` how a writer is made; each test makes its own."""

    def make(self) -> Writer:
        """Make a writer."""
        raise NotImplementedError

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """Where the segment file stands."""
        return tmp_path / "00000000000000000000"

    @pytest.fixture
    def file(self, path: Path) -> FaultyFile:
        """A segment file, allocated, and open for its writer."""
        file = FaultyFile(RealFileSystem().open(path, write=True, create=True))
        file.allocate(SIZE)
        return file

    # --- kinds and traits ---

    def test_it_has_the_methods_of_its_kind(self, file: FaultyFile) -> None:
        writer = self.make()
        assert check_object(writer, Writer) is None
        segment = writer.open(file, SIZE, 0)
        assert check_object(segment, SegmentWriter) is None
        segment.close()

    def test_its_alignment_is_a_power_of_two(self) -> None:
        alignment = self.make().traits.alignment_bytes
        assert alignment > 0
        assert alignment & (alignment - 1) == 0

    def test_writes_that_reach_the_device_are_aligned(self, file: FaultyFile) -> None:
        writer = self.make()
        segment = writer.open(file, SIZE, 0)
        _fill(segment, random.Random(3))
        segment.commit()
        segment.sync()
        segment.close()
        unit = writer.traits.alignment_bytes
        assert [write for write in file.writes if write[0] % unit or write[1] % unit] == []

    def test_zero_copy_views_are_memory_of_the_file(self, file: FaultyFile) -> None:
        writer = self.make()
        segment = writer.open(file, SIZE, 0)
        view = segment.view(0, 6)
        segment.write(0, b"record")
        assert bytes(view) == b"record" or not writer.traits.zero_copy_reads
        segment.close()

    # --- writing and reading ---

    def test_what_is_written_can_be_viewed_at_once(self, file: FaultyFile) -> None:
        segment = self.make().open(file, SIZE, 0)
        expected = _fill(segment, random.Random(1))
        assert bytes(segment.view(0, len(expected))) == expected
        segment.close()

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_any_bytes_can_be_written(
        self, file: FaultyFile, kind: Callable[[bytes], bytes | bytearray | memoryview]
    ) -> None:
        segment = self.make().open(file, SIZE, 0)
        segment.write(0, kind(b"record"))
        segment.write(6, kind(b""))
        assert bytes(segment.view(0, 6)) == b"record"
        segment.close()

    def test_what_was_given_to_write_may_be_reused_afterwards(self, file: FaultyFile) -> None:
        segment = self.make().open(file, SIZE, 0)
        data = bytearray(b"record")
        segment.write(0, data)
        data[:] = b"other!"
        assert bytes(segment.view(0, 6)) == b"record"
        segment.close()

    def test_the_first_and_the_last_byte_of_the_segment(self, file: FaultyFile, path: Path) -> None:
        segment = self.make().open(file, SIZE, 0)
        segment.write(0, b"\x01" * (SIZE - 1))
        segment.write(SIZE - 1, b"\x02")
        assert bytes(segment.view(SIZE - 2, 2)) == b"\x01\x02"
        assert len(segment.view(0, SIZE)) == SIZE
        assert len(segment.view(SIZE, 0)) == 0
        assert segment.commit() == SIZE
        segment.sync()
        segment.close()
        assert path.read_bytes() == b"\x01" * (SIZE - 1) + b"\x02"

    def test_records_that_were_there_stay(self, file: FaultyFile, path: Path) -> None:
        old = random.Random(5).randbytes(5_000)
        file.write_at(0, old)
        file.writes.clear()
        segment = self.make().open(file, SIZE, len(old))
        assert bytes(segment.view(0, len(old))) == old
        segment.write(len(old), b"new")
        assert bytes(segment.view(len(old) - 2, 5)) == old[-2:] + b"new"
        assert segment.commit() == len(old) + 3
        segment.sync()
        segment.close()
        assert path.read_bytes()[: len(old) + 3] == old + b"new"

    def test_the_file_keeps_its_length_and_is_zero_behind(
        self, file: FaultyFile, path: Path
    ) -> None:
        segment = self.make().open(file, SIZE, 0)
        segment.write(0, b"record")
        segment.commit()
        segment.sync()
        segment.close()
        assert path.read_bytes() == b"record".ljust(SIZE, b"\x00")

    # --- views ---

    def test_views_are_flat_runs_of_bytes_that_nobody_can_change(self, file: FaultyFile) -> None:
        segment = self.make().open(file, SIZE, 0)
        view = segment.view(10, 20)
        assert (view.format, view.ndim, view.nbytes) == ("B", 1, 20)
        assert view.readonly
        segment.close()

    def test_a_view_stays_right_when_more_is_written(self, file: FaultyFile) -> None:
        segment = self.make().open(file, SIZE, 0)
        segment.write(0, b"first")
        view = segment.view(0, 5)
        more = _fill(segment, random.Random(2), start=5)
        segment.commit()
        assert bytes(segment.view(5, 5)) == more[:5]
        assert bytes(view) == b"first"
        segment.close()

    def test_a_view_stays_right_after_close_and_unlink(self, file: FaultyFile, path: Path) -> None:
        segment = self.make().open(file, SIZE, 0)
        expected = _fill(segment, random.Random(4))
        segment.commit()
        view = segment.view(0, len(expected))
        path.unlink()
        assert bytes(view) == expected
        segment.close()
        del segment
        gc.collect()
        assert bytes(view) == expected

    def test_close_lets_go_of_the_file(self, file: FaultyFile, path: Path) -> None:
        segment = self.make().open(file, SIZE, 0)
        segment.write(0, b"record")
        view = segment.view(0, 6)
        assert _is_open(path)
        segment.close()
        del segment, view
        gc.collect()
        assert not _is_open(path)

    # --- others, and the disk ---

    def test_others_see_what_was_committed(self, file: FaultyFile, path: Path) -> None:
        writer = self.make()
        segment = writer.open(file, SIZE, 0)
        expected = _fill(segment, random.Random(6))
        if not writer.traits.staged:
            assert path.read_bytes()[: len(expected)] == expected
        assert segment.commit() == len(expected)
        assert path.read_bytes()[: len(expected)] == expected
        segment.close()

    def test_a_sync_reaches_the_disk(self, file: FaultyFile) -> None:
        segment = self.make().open(file, SIZE, 0)
        segment.write(0, b"record")
        segment.commit()
        before = file.syncs
        segment.sync()
        assert file.syncs > before
        segment.close()

    def test_a_failed_sync_is_an_os_error(self, file: FaultyFile) -> None:
        segment = self.make().open(file, SIZE, 0)
        segment.write(0, b"record")
        segment.commit()
        file.failing.add("sync")
        with pytest.raises(OSError, match="fails"):
            segment.sync()
        file.failing.clear()
        segment.close()

    def test_a_failed_write_is_an_os_error_by_the_sync(self, file: FaultyFile) -> None:
        segment = self.make().open(file, SIZE, 0)
        file.failing.add("write_at")
        failed = _fails(segment)
        file.failing.clear()
        assert failed or not file.writes
        segment.close()


def _fill(segment: SegmentWriter, choose: random.Random, start: int = 0) -> bytes:
    """Write pieces of all sizes back to back from ``start``; what was written."""
    written = bytearray()
    for _ in range(60):
        piece = choose.randbytes(choose.choice((1, 7, 91, 511, 512, 513, 1000)))
        segment.write(start + len(written), piece)
        written += piece
    return bytes(written)


def _fails(segment: SegmentWriter) -> bool:
    try:
        segment.write(0, b"record" * 100)
        segment.commit()
        segment.sync()
    except OSError:
        return True
    return False


def _is_open(path: Path) -> bool:
    """Whether this process has a descriptor of ``path``."""
    links = Path("/proc/self/fd").iterdir()
    return any(os.path.samestat(path.stat(), link.stat()) for link in links if link.exists())
