"""What every dispatcher must do: build from the log what can be built from it again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakelog.interfaces import Dispatcher
from lakelog.registry import check_object
from lakelog.testing.records import messages, record_batch

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

    @pytest.fixture
    def batch(self) -> RecordBatch:
        """A run of forty records."""
        return record_batch(messages(40))

    def test_it_has_the_methods_of_its_kind(self, tmp_path: Path) -> None:
        dispatcher = self.make(tmp_path)
        assert check_object(dispatcher, Dispatcher) is None
        dispatcher.close()

    def test_it_can_be_read_what_was_dispatched(self, tmp_path: Path, batch: RecordBatch) -> None:
        dispatcher = self.make(tmp_path)
        empty = self.contents(dispatcher)
        dispatcher.dispatch(batch)
        assert self.contents(dispatcher) != empty
        dispatcher.close()

    def test_an_empty_run_changes_nothing(self, tmp_path: Path, batch: RecordBatch) -> None:
        dispatcher = self.make(tmp_path)
        dispatcher.dispatch(batch)
        before = self.contents(dispatcher)
        dispatcher.dispatch(batch[40:])
        assert self.contents(dispatcher) == before
        dispatcher.close()

    def test_how_runs_are_cut_makes_no_difference(self, tmp_path: Path, batch: RecordBatch) -> None:
        whole, cut = self.make(tmp_path / "whole"), self.make(tmp_path / "cut")
        whole.dispatch(batch)
        for at in range(0, 40, 7):
            cut.dispatch(batch[at : at + 7])
        assert self.contents(cut) == self.contents(whole)
        whole.close()
        cut.close()

    def test_a_run_may_come_again(self, tmp_path: Path, batch: RecordBatch) -> None:
        dispatcher = self.make(tmp_path)
        dispatcher.dispatch(batch)
        expected = self.contents(dispatcher)
        dispatcher.dispatch(batch[20:])
        assert self.contents(dispatcher) == expected
        dispatcher.close()

    @pytest.mark.parametrize("kept", [0, 1, 20, 39])
    def test_truncate_forgets_what_is_behind(
        self, tmp_path: Path, batch: RecordBatch, kept: int
    ) -> None:
        cut, short = self.make(tmp_path / "cut"), self.make(tmp_path / "short")
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
        dispatcher = self.make(tmp_path)
        dispatcher.dispatch(batch)
        expected = self.contents(dispatcher)
        dispatcher.truncate(batch.end_offset)
        assert self.contents(dispatcher) == expected
        dispatcher.close()

    def test_what_was_closed_is_there_when_opened_again(
        self, tmp_path: Path, batch: RecordBatch
    ) -> None:
        dispatcher = self.make(tmp_path)
        dispatcher.dispatch(batch)
        expected = self.contents(dispatcher)
        dispatcher.flush()
        dispatcher.close()
        again = self.make(tmp_path)
        assert self.contents(again) == expected
        again.close()
