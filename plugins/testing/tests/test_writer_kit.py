"""The kit for writers accepts correct ones, and finds each mistake."""

# ruff: noqa: N801 - the nested classes fill the attribute of their name
from __future__ import annotations

import inspect
import os
from contextlib import suppress
from pathlib import Path

import pytest

from lakelog.files.filesystem import File, RealFileSystem
from lakelog.hooks import SegmentWriter, Writer, WriterTraits
from lakelog.message import Body
from lakelog_testing import FaultyFile, WriterContract
from lakelog_testing.contracts.writer import SIZE, opened
from plugins.testing.tests import stagedwriters as staged

pytestmark = pytest.mark.both_ways


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

    traits = WriterTraits()
    segment: type[Segment] = Segment

    def open(self, file: File, size_bytes: int, position: int) -> SegmentWriter:
        return self.segment(file, size_bytes, position)


class NotAligned(Sound):
    traits = WriterTraits(alignment_bytes=512)


class OddAlignment(Sound):
    traits = WriterTraits(alignment_bytes=3)


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


class TestSound(WriterContract):
    def make(self) -> Writer:
        return Sound()


class TestSoundlyStaged(WriterContract):
    def make(self) -> Writer:
        return staged.SoundlyStaged()


class Kit(WriterContract):
    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def make(self) -> Writer:
        return self.writer


@pytest.mark.parametrize(
    ("writer", "test"),
    [
        (NotAligned, "writes_that_reach_the_device_are_aligned"),
        (OddAlignment, "its_alignment_is_a_power_of_two"),
        (Hidden, "others_see_what_was_committed"),
        (Hidden, "the_first_and_the_last_byte_of_the_segment"),
        (Late, "what_was_given_to_write_may_be_reused_afterwards"),
        (Late, "what_is_written_can_be_viewed_at_once"),
        (Reusing, "a_view_stays_right_when_more_is_written"),
        (Growing, "the_file_keeps_its_length_and_is_zero_behind"),
        (Writable, "views_are_flat_runs_of_bytes_that_nobody_can_change"),
        (Released, "a_view_stays_right_after_close_and_unlink"),
        (Leaking, "close_lets_go_of_the_file"),
        (NeverSyncing, "a_sync_reaches_the_disk"),
        (Swallowing, "a_failed_sync_is_an_os_error"),
        (Swallowing, "a_failed_write_is_an_os_error_by_the_sync"),
        (Forgetting, "records_that_were_there_stay"),
        (staged.OneBuffer, "views_of_earlier_segments_stay_right"),
        (staged.Uncleaned, "nothing_of_earlier_segments_is_seen"),
        (staged.WholeBlocksOnly, "many_small_commits"),
        (staged.Overlong, "many_small_commits"),
        (staged.Unaligned, "writes_that_reach_the_device_are_aligned"),
        (staged.LateEnd, "what_comes_during_a_commit_is_not_counted"),
        (staged.TryingAgain, "a_failed_commit_is_an_os_error_for_good"),
        (staged.LettingGo, "a_full_segment_is_read_on"),
        (staged.LettingGoEarly, "a_roll_in_the_middle_of_a_commit_loses_nothing"),
        (staged.OldOnlyInFile, "views_reach_over_the_end_of_what_was_committed"),
        (MapsAll, "nothing_is_touched_that_has_no_blocks"),
        (Zeroing, "nothing_is_touched_that_has_no_blocks"),
        (object, "it_has_the_methods_of_its_kind"),
    ],
)
def test_each_mistake_is_found(tmp_path: Path, writer: type[Writer], test: str) -> None:
    path = tmp_path / "0"
    file = FaultyFile(RealFileSystem().open(path, write=True, create=True))
    file.truncate(SIZE)
    kit = Kit(writer())
    bound = getattr(kit, f"test_{test}")
    needed = inspect.signature(bound).parameters
    given: dict[str, object] = {"file": file, "path": path, "tmp_path": tmp_path}
    if "segment" in needed:
        given["segment"] = opened(kit.make(), file)
    with pytest.raises((AssertionError, ValueError, pytest.fail.Exception)):
        bound(*(given[name] for name in needed))
