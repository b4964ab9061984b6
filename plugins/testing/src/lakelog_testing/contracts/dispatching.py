"""Contract tests for what a store hands its records to, and for the methods that it gets.

Files of dispatchers must be reproducible from the log; followers start, stop promptly and leave
nothing behind; store extensions change nothing of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lakelog
from lakelog.format.layout import CHECKPOINT_FILE
from lakelog.hooks import Dispatcher, Follower, StoreExtension
from lakelog.registry import check_object, directories_problem
from lakelog.store.log_store import LogStore
from lakelog_testing.samples import messages, record_batch
from lakelog_testing.threads import PATIENCE_SECONDS, beside, no_thread_left

if TYPE_CHECKING:
    from lakelog.format.record_batch import RecordBatch


class DispatcherContract:
    """Subclass it and define :meth:`make` and :meth:`contents`."""

    def make(self, path: Path) -> Dispatcher:
        """Create a dispatcher whose files, if any, are below ``path``."""
        raise NotImplementedError

    def contents(self, dispatcher: Dispatcher) -> object:
        """The readable contents of the dispatcher, comparable with ``==``."""
        raise NotImplementedError

    def begun(self, path: Path, end: int = 0) -> Dispatcher:
        """Create a dispatcher and resume it, for a log from 0 to ``end``."""
        dispatcher = self.make(path)
        assert 0 <= dispatcher.resume(0, end) <= end
        return dispatcher

    @pytest.fixture
    def batch(self) -> RecordBatch:
        """Forty records."""
        return record_batch(messages(40))

    @pytest.fixture
    def filled(self, tmp_path: Path, batch: RecordBatch) -> Iterator[Dispatcher]:
        """A dispatcher with the forty records; closed after the test."""
        with closing(self.begun(tmp_path)) as dispatcher:
            dispatcher.dispatch(batch)
            yield dispatcher

    def test_it_has_the_methods_of_its_kind(self, tmp_path: Path) -> None:
        dispatcher = self.make(tmp_path)
        assert check_object(dispatcher, Dispatcher) is None
        assert directories_problem(dispatcher) is None
        dispatcher.close()

    def test_it_can_be_read_what_was_dispatched(self, tmp_path: Path, batch: RecordBatch) -> None:
        dispatcher = self.begun(tmp_path)
        empty = self.contents(dispatcher)
        dispatcher.dispatch(batch)
        assert self.contents(dispatcher) != empty
        dispatcher.close()

    def test_an_empty_run_changes_nothing(self, filled: Dispatcher, batch: RecordBatch) -> None:
        before = self.contents(filled)
        filled.dispatch(batch[40:])
        assert self.contents(filled) == before

    def test_how_runs_are_cut_makes_no_difference(self, tmp_path: Path, batch: RecordBatch) -> None:
        whole, cut = self.begun(tmp_path / "whole"), self.begun(tmp_path / "cut")
        whole.dispatch(batch)
        for at in range(0, 40, 7):
            cut.dispatch(batch[at : at + 7])
        assert self.contents(cut) == self.contents(whole)
        whole.close()
        cut.close()

    def test_a_run_may_come_again(self, filled: Dispatcher, batch: RecordBatch) -> None:
        expected = self.contents(filled)
        filled.dispatch(batch[20:])
        assert self.contents(filled) == expected

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
        self, filled: Dispatcher, batch: RecordBatch
    ) -> None:
        expected = self.contents(filled)
        filled.truncate(batch.end_offset)
        assert self.contents(filled) == expected

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


class FollowerContract:
    """Subclass it and define :meth:`make`; each test creates its own follower."""

    patience_seconds: float = PATIENCE_SECONDS
    """Time limit of a test for an expected event."""

    def make(self) -> Follower:
        """Create a follower that is not started."""
        raise NotImplementedError

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make(), Follower) is None

    def test_start_returns_and_does_not_follow_in_the_callers_thread(self) -> None:
        follower = self.make()
        with beside(follower.start) as call:
            call.result(self.patience_seconds)
        follower.stop()

    def test_stop_returns_when_stopped(self) -> None:
        with no_thread_left(self.patience_seconds):
            follower = self.make()
            follower.start()
            with beside(follower.stop) as call:
                call.result(self.patience_seconds)


_ROLES = ("write", "exclusive", "read")


class StoreExtensionContract:
    """Subclass it, and provide the plugin and an extension that it makes."""

    plugin: object
    """The plugin that offers the extension."""

    def make(self) -> StoreExtension:
        """Create the extension."""
        raise NotImplementedError

    def open(self, path: Path, **arguments: Any) -> LogStore:
        """Open a store with the extension; small, and without other plugins."""
        return lakelog.open(path, plugins=[self.plugin], segment_size_bytes="1MiB", **arguments)

    def test_it_has_the_methods_of_its_kind(self) -> None:
        assert check_object(self.make(), StoreExtension) is None

    def test_the_class_of_stores_has_all_methods_of_the_log(self) -> None:
        assert issubclass(self.make().store_class, LogStore)

    def test_each_role_has_resources_that_can_be_closed(self, tmp_path: Path) -> None:
        self.open(tmp_path).close()
        for mode in _ROLES:
            with self.open(tmp_path, mode=mode) as store:
                assert type(store) is self.make().store_class
                made = store._current.now().extension
                assert callable(made.close)
                assert made.waits.failure is None

    def test_the_log_is_written_and_read_as_without_it(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            results = [store.put(lakelog.Message("t", b"%d" % each)) for each in range(10)]
            assert [each.physical_offset for each in store.scan()] == [
                each.physical_offset for each in results
            ]
        with self.open(tmp_path, mode="read") as reader:
            assert [each.body for each in reader.scan()] == [b"%d" % each for each in range(10)]

    def test_a_reader_changes_no_file(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            store.put(lakelog.Message("t", b"x"))
        before = _files(tmp_path)
        with self.open(tmp_path, mode="read") as reader:
            assert len(list(reader.scan())) == 1
        assert _files(tmp_path) == before

    def test_a_closed_store_can_be_closed_again(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        store.close()
        store.close()


def _files(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}
