"""What every writer must do with a segment file, its views and its failures.

Writers reach the disk through the ``File`` that they are handed, or a failure
that a test or the crash simulator makes there would pass unseen.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from lakelog.files.filesystem import RealFileSystem
from lakelog.interfaces import SegmentWriter, Writer
from lakelog.registry import check_object
from lakelog_testing.descriptors import open_in
from lakelog_testing.faultyfile import FaultyFile
from lakelog_testing.samebytes import assert_same
from lakelog_testing.stepwise import STEP_BYTES, Stepwise, has_data
from lakelog_testing.threads import beside

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
        """A segment file of full length without blocks, open for its writer."""
        return _made(path)

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
        segment = _opened(writer, file)
        _fill(segment, random.Random(3))
        segment.commit()
        segment.sync()
        segment.close()
        unit = writer.traits.alignment_bytes
        assert [write for write in file.writes if write[0] % unit or write[1] % unit] == []
        assert [address for address in file.addresses if address % unit] == []

    def test_zero_copy_views_are_memory_of_the_file(self, file: FaultyFile) -> None:
        writer = self.make()
        segment = _opened(writer, file)
        view = segment.view(0, 6)
        segment.write(0, b"record")
        assert bytes(view) == b"record" or not writer.traits.zero_copy_reads
        segment.close()

    # --- writing and reading ---

    def test_what_is_written_can_be_viewed_at_once(self, file: FaultyFile) -> None:
        segment = _opened(self.make(), file)
        expected = _fill(segment, random.Random(1))
        assert_same(bytes(segment.view(0, len(expected))), expected)
        segment.close()

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_any_bytes_can_be_written(
        self, file: FaultyFile, kind: Callable[[bytes], bytes | bytearray | memoryview]
    ) -> None:
        segment = _opened(self.make(), file)
        segment.write(0, kind(b"record"))
        segment.write(6, kind(b""))
        assert_same(bytes(segment.view(0, 6)), b"record")
        segment.close()

    def test_what_was_given_to_write_may_be_reused_afterwards(self, file: FaultyFile) -> None:
        segment = _opened(self.make(), file)
        data = bytearray(b"record")
        segment.write(0, data)
        data[:] = b"other!"
        assert_same(bytes(segment.view(0, 6)), b"record")
        segment.close()

    def test_the_first_and_the_last_byte_of_the_segment(self, file: FaultyFile, path: Path) -> None:
        segment = _opened(self.make(), file)
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
        segment = _opened(self.make(), file, len(old))
        assert_same(bytes(segment.view(0, len(old))), old)
        segment.write(len(old), b"new")
        assert_same(bytes(segment.view(len(old) - 2, 5)), old[-2:] + b"new")
        assert segment.commit() == len(old) + 3
        segment.sync()
        segment.close()
        assert_same(path.read_bytes()[: len(old) + 3], old + b"new")

    def test_the_file_keeps_its_length_and_is_zero_behind(
        self, file: FaultyFile, path: Path
    ) -> None:
        segment = _opened(self.make(), file)
        segment.write(0, b"record")
        segment.commit()
        segment.sync()
        segment.close()
        assert_same(path.read_bytes(), b"record".ljust(SIZE, b"\x00"))

    # --- views ---

    def test_views_are_flat_runs_of_bytes_that_nobody_can_change(self, file: FaultyFile) -> None:
        segment = _opened(self.make(), file)
        view = segment.view(10, 20)
        assert (view.format, view.ndim, view.nbytes) == ("B", 1, 20)
        assert view.readonly
        segment.close()

    def test_a_view_stays_right_when_more_is_written(self, file: FaultyFile) -> None:
        segment = _opened(self.make(), file)
        segment.write(0, b"first")
        view = segment.view(0, 5)
        more = _fill(segment, random.Random(2), start=5)
        segment.commit()
        assert_same(bytes(segment.view(5, 5)), more[:5])
        assert_same(bytes(view), b"first")
        segment.close()

    def test_a_view_stays_right_after_close_and_unlink(self, file: FaultyFile, path: Path) -> None:
        segment = _opened(self.make(), file)
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
        segment = _opened(self.make(), file)
        segment.write(0, b"record")
        view = segment.view(0, 6)
        assert open_in(path)
        segment.close()
        del segment, view
        gc.collect()
        assert not open_in(path)

    def test_views_of_earlier_segments_stay_right(self, tmp_path: Path) -> None:
        """Memory that a writer uses again must not be under anybody's eyes."""
        writer, views, expected = self.make(), [], []
        for number in range(7):
            segment = _opened(writer, _made(tmp_path / f"{number}"))
            expected.append(_fill(segment, random.Random(number)))
            if number % 2 == 0:  # held, and let go of, in turns
                views.append(segment.view(0, len(expected[-1])))
            segment.finish()
        for view, due in zip(views, expected[::2], strict=True):
            assert_same(view, due)

    def test_nothing_of_earlier_segments_is_seen(self, tmp_path: Path) -> None:
        writer = self.make()
        for number in range(7):
            path = tmp_path / f"{number}"
            segment = _opened(writer, _made(path))
            assert_same(bytes(segment.view(0, SIZE)), bytes(SIZE))
            segment.write(0, b"%d" % number * (SIZE - 600 * number))
            assert_same(bytes(segment.view(SIZE - 600 * number, 600 * number)), bytes(600 * number))
            segment.finish()
            assert_same(path.read_bytes()[SIZE - 600 * number :], bytes(600 * number))

    # --- commits ---

    def test_others_see_what_was_committed(self, file: FaultyFile, path: Path) -> None:
        writer = self.make()
        segment = _opened(writer, file)
        expected = _fill(segment, random.Random(6))
        if not writer.traits.staged:
            assert_same(path.read_bytes()[: len(expected)], expected)
        assert segment.commit() == len(expected)
        assert_same(path.read_bytes()[: len(expected)], expected)
        segment.close()

    def test_many_small_commits(self, file: FaultyFile, path: Path) -> None:
        """A block that is not full is written again and again, and nothing stands behind it."""
        segment, choose, written = _opened(self.make(), file), random.Random(7), b""
        for _ in range(50):
            piece = choose.randbytes(choose.choice((1, 30, 300, 3000)))
            segment.write(len(written), piece)
            written += piece
            assert segment.commit() == len(written)
            assert_same(path.read_bytes(), written.ljust(SIZE, b"\x00"))
            assert_same(bytes(segment.view(0, len(written))), written)
        segment.close()

    def test_views_reach_over_the_end_of_what_was_committed(self, file: FaultyFile) -> None:
        old = random.Random(8).randbytes(5_000)
        file.write_at(0, old)
        segment = _opened(self.make(), file, len(old))
        segment.write(len(old), b"first")
        segment.commit()
        segment.write(len(old) + 5, b"second" * 2_000)
        expected = old + b"first" + b"second" * 2_000
        for position in (0, 4_000, len(old) - 1, len(old), len(old) + 3, len(old) + 5, 16_000):
            assert_same(
                bytes(segment.view(position, len(expected) - position)), expected[position:]
            )
        segment.close()

    def test_a_commit_covers_what_was_written_before_it(self, file: FaultyFile, path: Path) -> None:
        """While another thread goes on writing."""
        segment = _opened(self.make(), file)
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
        segment.close()

    def test_what_comes_during_a_commit_is_not_counted(self, file: FaultyFile, path: Path) -> None:
        segment = _opened(self.make(), file)
        segment.write(0, b"first")
        file.meanwhile = lambda: segment.write(5, b"second")
        committed = segment.commit()
        assert_same(path.read_bytes()[:committed], b"firstsecond"[:committed])
        end = 11 if file.meanwhile is None else 5
        file.meanwhile = None
        assert segment.commit() == end
        assert_same(path.read_bytes(), b"firstsecond"[:end].ljust(SIZE, b"\x00"))
        segment.close()

    def test_a_full_segment_is_read_on(self, file: FaultyFile, path: Path) -> None:
        """What was kept in memory may go once the segment is sealed and committed."""
        segment = _opened(self.make(), file)
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
        self, file: FaultyFile, path: Path
    ) -> None:
        """The last bytes and the seal come while a commit writes: the next one writes the rest.

        The store's sync does that, before it closes the segment.
        """
        segment = _opened(self.make(), file)
        segment.write(0, b"first")

        def roll() -> None:
            segment.write(5, b"second")
            segment.seal()

        file.meanwhile = roll
        segment.commit()
        if file.meanwhile is not None:  # a commit that writes nothing
            file.meanwhile = None
            roll()
        assert_same(bytes(segment.view(0, 11)), b"firstsecond")
        assert segment.commit() == 11
        assert_same(bytes(segment.view(0, 11)), b"firstsecond")
        segment.sync()
        segment.close()
        assert_same(path.read_bytes(), b"firstsecond".ljust(SIZE, b"\x00"))

    def test_a_failed_commit_is_an_os_error_for_good(self, file: FaultyFile) -> None:
        """What did not get there is not reported as committed, and not tried again."""
        segment = _opened(self.make(), file)
        segment.write(0, b"record")
        assert segment.commit() == 6
        file.failing.add("write_at")
        failed = segment.fails(6)
        file.failing.clear()
        if failed and self.make().traits.staged:
            with pytest.raises(OSError, match="fails"):
                segment.commit()
        segment.close()

    # --- the disk ---

    def test_nothing_is_touched_that_has_no_blocks(self, file: FaultyFile, path: Path) -> None:
        """Neither by a write nor by a map that can be written: on a full disk that is SIGBUS."""
        old = random.Random(11).randbytes(5_000)
        file.allocate(len(old))
        file.write_at(0, old)
        segment, end = _opened(self.make(), file, len(old)), len(old)
        for length in (1, 3_000, 5_000, 8_192, 20_000):
            segment.write(end, bytes(length))
            end += length
            assert segment.commit() == end
            segment.sync()
            assert_same(bytes(segment.view(0, len(old))), old)
            assert file.trespasses == []
            assert not has_data(path, -(-file.allocated_end // STEP_BYTES) * STEP_BYTES)
        segment.close()

    def test_a_sync_reaches_the_disk(self, file: FaultyFile) -> None:
        segment = _opened(self.make(), file)
        segment.write(0, b"record")
        segment.commit()
        before = file.syncs
        segment.sync()
        assert file.syncs > before
        segment.close()

    def test_a_failed_sync_is_an_os_error(self, file: FaultyFile) -> None:
        segment = _opened(self.make(), file)
        segment.write(0, b"record")
        segment.commit()
        file.failing.add("sync")
        with pytest.raises(OSError, match="fails"):
            segment.sync()
        file.failing.clear()
        segment.close()

    def test_a_failed_write_is_an_os_error_by_the_sync(self, file: FaultyFile) -> None:
        segment = _opened(self.make(), file)
        file.failing.add("write_at")
        failed = segment.fails()
        file.failing.clear()
        assert failed or not file.writes
        segment.close()


def _made(path: Path) -> FaultyFile:
    file = FaultyFile(RealFileSystem().open(path, write=True, create=True))
    file.truncate(SIZE)
    return file


def _opened(writer: Writer, file: FaultyFile, position: int = 0) -> Stepwise:
    return Stepwise(writer, file, SIZE, position)


def _fill(segment: Stepwise, choose: random.Random, start: int = 0) -> bytes:
    """Write pieces of all sizes back to back from ``start``; what was written."""
    written = bytearray()
    for _ in range(60):
        piece = choose.randbytes(choose.choice((1, 7, 91, 511, 512, 513, 1000)))
        segment.write(start + len(written), piece)
        written += piece
    return bytes(written)
