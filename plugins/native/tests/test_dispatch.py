"""Queues and index: both ways make the same files of the same records, byte for byte."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.format.examples import MESSAGES
from core.tests.format.support import log_of
from lakelog.format.properties import REPAIRED_TOPIC, SCHEDULE_TOPIC
from lakelog.format.record_batch import RecordBatch, decode_run
from lakelog.message import Message
from lakelog_hash_index.filewriter import IndexFileWriter
from lakelog_hash_index.keys import find_keys
from lakelog_hash_index.plugin import HashIndexSettings
from lakelog_native.accelerator import Native
from lakelog_queues.dispatching.grouping import Grouping, queue_groups
from lakelog_queues.plugin import ConsumeQueueSettings
from plugins.hash_index.tests.support import NOW_MS, Rec, owner, snapshot
from plugins.hash_index.tests.support import batch_of as index_batch_of
from plugins.native.tests.support import both
from plugins.queues.tests.consumequeue.support import queues

NAMES = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"XTAGS", b"TAGSX", b"", b"S", b"DELAY"])
VALUES = st.one_of(
    st.binary(max_size=6),
    st.sampled_from([b"3", b"a b", b"a"]),
    st.text("ab \u00e9\U0001f600\x01", max_size=6).map(str.encode),
)
PIECES = st.builds(lambda name, value: name + b"\x01" + value, NAMES, VALUES)
STRINGS = st.lists(PIECES | st.binary(max_size=3), max_size=5).map(
    lambda pieces: b"\x02".join(pieces).replace(b"\0", b"0")  # a zero at the end was lost
)
TOPICS = st.sampled_from(
    ["t", "orders", "\u00e9", "\U0001f600#", "t" * 127, "a/b", "..", SCHEDULE_TOPIC, REPAIRED_TOPIC]
)
TIMES = st.one_of(st.integers(NOW_MS, NOW_MS + 9999), st.integers(-(1 << 63), (1 << 63) - 1))
RECORDS = st.builds(Rec, STRINGS, TOPICS, TIMES, st.sampled_from([0, 0x4, 0x8, 0xC]))


@attrs.frozen
class Numbered:
    """A record of an index test, with its place in a queue."""

    rec: Rec
    queue_id: int
    queue_offset: int


PLACES = st.builds(
    Numbered, RECORDS, st.sampled_from([0, 1, 7, -1]), st.integers(-1, 12) | st.just(1 << 40)
)


def batch_of(numbered: Sequence[Numbered], base_offset: int = 0) -> RecordBatch:
    batch = index_batch_of([each.rec for each in numbered], base_offset)
    log = bytearray(batch.buffer)
    for start, each in zip(batch.starts.tolist(), numbered, strict=True):
        log[start + 12 : start + 16] = each.queue_id.to_bytes(4, "big", signed=True)
        log[start + 20 : start + 28] = each.queue_offset.to_bytes(8, "big", signed=True)
    return decode_run(bytes(log), base_offset)


def following(count: int) -> list[Numbered]:
    """Enough records for the release of the interpreter lock, consecutive in two queues."""
    recs = [Rec.keyed("a b", time_ms=NOW_MS + at * 400) for at in range(count)]
    return [Numbered(rec, at % 2, at // 2) for at, rec in enumerate(recs)]


def written(make: Callable[[Path], object]) -> dict[str, bytes]:
    """The files that ``make`` leaves, except files with times; index files by number, not time."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        path.mkdir()
        make(path)
        shutil.rmtree(path / "lakelog", ignore_errors=True)
        found = snapshot(path)
        index = sorted(name for name in found if "/index/" in name)
        names = {name: name.removeprefix(folder) for name in found}
        names |= {name: f"/store/index/{at}" for at, name in enumerate(index)}
        return {names[name]: data for name, data in found.items()}


def dispatch_queues(
    path: Path, batches: Sequence[RecordBatch], options: ConsumeQueueSettings, buried: int
) -> None:
    made = queues(path, options, tombstones={"t": buried})
    made.resume(0, 0)
    for batch in batches:
        made.dispatch(batch)
    made.close()


def dispatch_index(path: Path, batches: Sequence[RecordBatch]) -> None:
    made = owner(path, HashIndexSettings(slots=5, entries=200))
    made.resume(0, 0)
    for batch in batches:
        made.dispatch(batch)
    made.close()


@settings(max_examples=8)  # each makes, and syncs, four folders
@given(
    st.lists(st.lists(PLACES, max_size=8), min_size=1, max_size=3),
    st.sampled_from([0, 6, 100]),
    st.sampled_from([0, 150]),
    st.booleans(),
    st.booleans(),
)
def test_files_are_the_same(
    runs: list[list[Numbered]], more: int, buried: int, ext: bool, again: bool
) -> None:
    batches, end = [], 0
    for run in [following(more), *runs]:
        batches.append(batch_of(run, end))
        end = batches[-1].end_offset if run else end
    batches += batches[-1:] if again else []
    options = ConsumeQueueSettings(file_entries=10, flush_interval_ms=3_600_000, ext_enabled=ext)
    for make in (
        lambda path: dispatch_queues(path, batches, options, buried),
        lambda path: dispatch_index(path, batches),
    ):
        native, plain = both(lambda make=make: written(make))  # type: ignore[misc]  # one name for two
        assert native == plain


def groups(batch: RecordBatch) -> object:
    keys = find_keys(batch)
    found = [(group.queue, group.records.tolist()) for group in queue_groups(batch)]
    return found, keys.records.tolist(), keys.hashes.tolist(), keys.hashes.dtype


@given(st.lists(MESSAGES, max_size=6))
def test_messages(put: list[Message]) -> None:
    log = log_of(put)
    native, plain = both(lambda: groups(decode_run(log)))
    assert native == plain


def test_units_that_follow_one_another_are_written_as_they_are_found() -> None:
    """Otherwise the test of the files would compare Python with itself."""
    grouping, batch = Grouping((), False, {}), batch_of(following(4))
    native, plain = both(lambda: [each.raw is None for each in grouping.units(batch)])
    assert (native, plain) == ([False] * 2, [True] * 2)


def test_entries_are_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, done = batch_of(following(4)), []
    put_keys = IndexFileWriter.put_keys

    def noted(file: IndexFileWriter, keyed: RecordBatch) -> tuple[int, int] | None:
        done.append(put_keys(file, keyed))
        return done[-1]

    monkeypatch.setattr(IndexFileWriter, "put_keys", noted)
    both(lambda: dispatch_index(tmp_path / str(len(done)), [batch]))
    assert done == [(3, 2), None]


def test_where_no_record_starts_nothing_is_done() -> None:
    native, batch = Native(), batch_of(following(2))
    starts = np.array([0, 1], np.int64)
    for starts[1] in (-1, 1, 90, 1 << 40):
        assert native.queue_units(batch.buffer, starts) is None
        assert native.keys(batch.buffer, starts) is None
    assert native.keys(batch.buffer, starts[:1]) is not None
    assert native.keys(batch.buffer, starts.astype(np.int32)) is None
