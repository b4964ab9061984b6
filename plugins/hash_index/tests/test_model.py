"""After operations in any order, the index agrees with a dictionary, and its files are sound."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lakelog.format.record_batch import RecordBatch
from lakelog_hash_index import verify
from lakelog_hash_index.plugin import HashIndexSettings
from lakelog_testing import StoreMachine
from plugins.hash_index.tests.support import (
    FOREVER,
    NOW_MS,
    Rec,
    batch_of,
    find,
    owner,
    reader,
    resumed,
    snapshot,
    write_log,
)

KEYS = ["a", "b", "c", "dd", "\U0001f600", "never"]
SIZES = HashIndexSettings(slots=3, entries=6)


class IndexMachine(RuleBasedStateMachine):
    """An owner's index over a log in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "store"
        self.recs: list[tuple[Rec, list[str]]] = []
        self.index: Any = resumed(owner(self.path, SIZES), self.batch())

    def batch(self) -> RecordBatch:
        return batch_of([rec for rec, _ in self.recs])

    @rule(
        many=st.lists(
            st.tuples(st.lists(st.sampled_from(KEYS[:-1]), max_size=8), st.integers(0, 3000)),
            max_size=8,
        ),
        again=st.integers(0, 3),
    )
    def dispatch(self, many: list[tuple[list[str], int]], again: int) -> None:
        """Dispatch new records, together with some that were dispatched before."""
        known = len(self.recs)
        for keys, later_ms in many:
            time_ms = later_ms + (self.recs[-1][0].time_ms if self.recs else NOW_MS)
            self.recs.append((Rec.keyed(" ".join(keys), time_ms=time_ms), keys))
        self.index.dispatch(self.batch()[max(known - again, 0) :])

    @rule(kept=st.integers(0, 10))
    def truncate(self, kept: int) -> None:
        """The log loses its tail."""
        self.recs = self.recs[: max(len(self.recs) - kept, 0)]
        self.index.truncate(self.batch().end_offset)

    @rule(lost=st.integers(0, 5), abort=st.booleans())
    def reopen(self, lost: int, abort: bool) -> None:
        """Close and reopen, cleanly or not; the log may have lost its tail meanwhile."""
        self.index.close()
        self.recs = self.recs[: max(len(self.recs) - lost, 0)]
        write_log(self.path, self.batch())
        (self.path / "abort").touch()
        if not abort:
            (self.path / "abort").unlink()
        self.index = resumed(owner(self.path, SIZES), self.batch())

    @rule()
    def read(self) -> None:
        """Read by a reader, which changes no file."""
        write_log(self.path, self.batch())
        self.index.flush()  # the checkpoint moves while full files are synced
        before = snapshot(self.path)
        self.agrees_with(resumed(reader(self.path, SIZES), self.batch()))
        assert snapshot(self.path) == before

    def agrees_with(self, index: Any) -> None:
        offsets = self.batch().physical_offsets.tolist()
        for key in KEYS:
            having = [at for at, (_, keys) in enumerate(self.recs) if key in keys]
            assert find(index, key) == [offsets[at] for at in reversed(having)]
            for at in having[-2:]:  # a window of that one millisecond
                time_ms = self.recs[at][0].time_ms
                assert offsets[at] in find(index, key, window=(time_ms, time_ms))

    @invariant()
    def the_model_agrees(self) -> None:
        self.agrees_with(self.index)

    @invariant()
    def the_files_keep_their_rules(self) -> None:
        assert verify(self.path / "index", SIZES.slots, SIZES.entries) == []

    def teardown(self) -> None:
        self.index.close()
        self.folder.cleanup()


TestIndex = IndexMachine.TestCase
TestIndex.settings = settings(max_examples=10, stateful_step_count=10, deadline=None)


# --- the same in a store ---


class WithIndex(StoreMachine):
    """Many small index files, and queues of a few units a file."""

    settings = MappingProxyType(
        {
            "preallocate": False,
            "dispatchers": ["consume-queue", "hash-index"],
            "consume-queue": {"file_entries": 7},
            "hash-index": {"slots": 5, "entries": 20},
        }
    )
    has_key_index = True


TestWithIndex = WithIndex.TestCase
TestWithIndex.settings = settings(max_examples=8, stateful_step_count=30, deadline=None)


# --- look-ups in other threads and other opens while the index grows ---


MANY = HashIndexSettings(slots=7, entries=300)
STEP = 10


def test_looks_while_it_grows_find_whole_runs_and_no_damage(tmp_path: Path) -> None:
    batch = batch_of([Rec.keyed("all other") for _ in range(300)])
    offsets = batch.physical_offsets.tolist()
    write_log(tmp_path, batch[:0])
    (tmp_path / "abort").touch()
    index = owner(tmp_path, MANY)
    index.resume(0, batch.end_offset)
    stranger = reader(tmp_path, MANY)
    done = Event()

    def look(seen: Any) -> None:
        looks = 0
        while not done.is_set() or looks < 2:
            found = list(seen.offsets("t", "all", *FOREVER))
            assert found == offsets[: len(found)][::-1]
            looks += 1

    index.dispatch(batch[:STEP])
    stranger.resume(0, batch.end_offset)
    with ThreadPoolExecutor(2) as pool:
        looking = [pool.submit(look, each) for each in (index, stranger)]
        for at in range(STEP, len(offsets), STEP):
            index.dispatch(batch[at : at + STEP])
        done.set()
        for each in looking:
            each.result()
    index.close()
    assert list(index.offsets("t", "all", *FOREVER)) == offsets[::-1]
