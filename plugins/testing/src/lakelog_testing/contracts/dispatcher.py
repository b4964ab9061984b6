"""What every dispatcher must do: build from the log what can be built from it again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakelog.format.layout import CHECKPOINT_FILE
from lakelog.interfaces import Dispatcher
from lakelog.registry import check_object
from lakelog_testing.records import messages, record_batch

if TYPE_CHECKING:
    from lakelog.codec import RecordBatch


class DispatcherContract:
    """Subclass it, and say how a dispatcher is made and what a reader finds in what it built."""

    def make(self, path: Path) -> Dispatcher:
        """Make a dispatcher whose files, if it has any, stand below ``path``."""
        raise NotImplementedError

    def contents(self, dispatcher: Dispatcher) -> object:
        """What a reader finds in it now, in a form that can be compared with ``==``."""
        raise NotImplementedError

    def begun(self, path: Path, end: int = 0) -> Dispatcher:
        """Make one and let it look at what is there, for a log that holds 0 to ``end``."""
        dispatcher = self.make(path)
        assert 0 <= dispatcher.resume(0, end) <= end
        return dispatcher

    @pytest.fixture
    def batch(self) -> RecordBatch:
        """A run of forty records."""
        return record_batch(messages(40))

    def test_it_has_the_methods_of_its_kind(self, tmp_path: Path) -> None:
        dispatcher = self.make(tmp_path)
        assert check_object(dispatcher, Dispatcher) is None
        assert all(name and "/" not in name for name in dispatcher.directories)
        dispatcher.close()

    def test_it_can_be_read_what_was_dispatched(self, tmp_path: Path, batch: RecordBatch) -> None:
        dispatcher = self.begun(tmp_path)
        empty = self.contents(dispatcher)
        dispatcher.dispatch(batch)
        assert self.contents(dispatcher) != empty
        dispatcher.close()

    def test_an_empty_run_changes_nothing(self, tmp_path: Path, batch: RecordBatch) -> None:
        dispatcher = self.begun(tmp_path)
        dispatcher.dispatch(batch)
        before = self.contents(dispatcher)
        dispatcher.dispatch(batch[40:])
        assert self.contents(dispatcher) == before
        dispatcher.close()

    def test_how_runs_are_cut_makes_no_difference(self, tmp_path: Path, batch: RecordBatch) -> None:
        whole, cut = self.begun(tmp_path / "whole"), self.begun(tmp_path / "cut")
        whole.dispatch(batch)
        for at in range(0, 40, 7):
            cut.dispatch(batch[at : at + 7])
        assert self.contents(cut) == self.contents(whole)
        whole.close()
        cut.close()

    def test_a_run_may_come_again(self, tmp_path: Path, batch: RecordBatch) -> None:
        dispatcher = self.begun(tmp_path)
        dispatcher.dispatch(batch)
        expected = self.contents(dispatcher)
        dispatcher.dispatch(batch[20:])
        assert self.contents(dispatcher) == expected
        dispatcher.close()

    @pytest.mark.parametrize("kept", [0, 1, 20, 39])
    def test_truncate_forgets_what_is_behind(
        self, tmp_path: Path, batch: RecordBatch, kept: int
    ) -> None:
        cut, short = self.begun(tmp_path / "cut"), self.begun(tmp_path / "short")
        cut.dispatch(batch)
        cut.truncate(batch[:kept].end_offset)
        short.dispatch(batch[:kept])
        assert self.contents(cut) == self.contents(short)
        cut.dispatch(batch[kept:])
        short.dispatch(batch[kept:])
        assert self.contents(cut) == self.contents(short)
        cut.close()
        short.close()

    def test_truncate_behind_the_end_changes_nothing(
        self, tmp_path: Path, batch: RecordBatch
    ) -> None:
        dispatcher = self.begun(tmp_path)
        dispatcher.dispatch(batch)
        expected = self.contents(dispatcher)
        dispatcher.truncate(batch.end_offset)
        assert self.contents(dispatcher) == expected
        dispatcher.close()

    def test_what_was_closed_is_there_when_opened_again(
        self, tmp_path: Path, batch: RecordBatch
    ) -> None:
        dispatcher = self.begun(tmp_path)
        dispatcher.dispatch(batch)
        expected = self.contents(dispatcher)
        dispatcher.flush()
        dispatcher.close()
        again = self.begun(tmp_path, batch.end_offset)
        assert self.contents(again) == expected
        again.close()

    def test_without_anything_the_whole_log_is_asked_for(
        self, tmp_path: Path, batch: RecordBatch
    ) -> None:
        dispatcher = self.make(tmp_path)
        first = int(batch.physical_offsets[7])
        assert dispatcher.resume(first, batch.end_offset) == first
        dispatcher.close()

    @pytest.mark.parametrize("known", [1, 20, 39])
    def test_what_is_missing_is_asked_for(
        self, tmp_path: Path, batch: RecordBatch, known: int
    ) -> None:
        whole, part = self.begun(tmp_path / "whole"), self.begun(tmp_path / "part")
        whole.dispatch(batch)
        part.dispatch(batch[:known])
        part.close()
        part = self.make(tmp_path / "part")
        start = part.resume(0, batch.end_offset)
        assert start <= batch[:known].end_offset
        part.dispatch(batch[int((batch.physical_offsets < start).sum()) :])
        assert self.contents(part) == self.contents(whole)
        whole.close()
        part.close()

    @pytest.mark.parametrize("kept", [1, 20, 39])
    def test_what_stands_behind_the_end_of_the_log_is_forgotten(
        self, tmp_path: Path, batch: RecordBatch, kept: int
    ) -> None:
        long, short = self.begun(tmp_path / "long"), self.begun(tmp_path / "short")
        long.dispatch(batch)
        short.dispatch(batch[:kept])
        long.close()
        long = self.begun(tmp_path / "long", batch[:kept].end_offset)
        assert self.contents(long) == self.contents(short)
        long.close()
        short.close()

    def test_it_writes_into_its_own_folders_only(self, tmp_path: Path, batch: RecordBatch) -> None:
        dispatcher = self.begun(tmp_path)
        dispatcher.dispatch(batch)
        dispatcher.close()
        written = {path.name for path in tmp_path.iterdir()}
        assert written <= {*dispatcher.directories, CHECKPOINT_FILE}
