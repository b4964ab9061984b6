"""A log read by several processes has the result of one scan, also with damage across borders."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import attrs
import psutil
import pytest

from core.tests.store.support import SEGMENT, a_store, open_small, read_small, segments
from lakelog import Store, accelerate
from lakelog.errors import CorruptRecord
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.record_batch import Blank, Damage, RecordBatch
from lakelog.log.sources import keep_damage
from lakelog_doctor.parallel_scan import (
    Part,
    WholeSegment,
    _joined,
    _sealed,
    _undamaged,
    parallel_scan,
    read_whole,
)
from lakelog_testing.samples import copy_store
from tests.support.sampling import chance

Found = list[tuple[str, int, int, str]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of 10 segments."""
    path = tmp_path_factory.mktemp("parallel") / "store"
    a_store(path, 320)
    return path


def in_one_process(store: Store) -> Iterable[Part]:
    asked = _undamaged(store, _sealed(store))
    return _joined(store, ((each, read_whole(each)) for each in asked))


def found(store: Store, parts: Iterable[Part]) -> Found:
    """Each record, blank and damage; the content of whole segments is read."""
    rows: Found = []
    for part in parts:
        if isinstance(part, WholeSegment):
            inner = list(store.scan_pieces(part.start_offset, part.end_offset))
            records = [each for each in inner if isinstance(each, RecordBatch)]
            assert part.records == sum(map(len, records))
            assert part.record_bytes == sum(int(each.sizes.sum()) for each in records)
            assert part.last_timestamp_ms == int(records[-1].store_timestamps_ms[-1])
            rows += found(store, inner)
        elif isinstance(part, Damage):
            rows.append(("damage", part.offset, part.end_offset, str(part.error)))
        elif isinstance(part, Blank):
            rows.append(("blank", part.offset, part.size, ""))
        else:
            offsets = (part.starts + part.base_offset).tolist()
            rows += [("record", *each, "") for each in zip(offsets, part.sizes, strict=True)]
    return rows


def spoil(path: Path, chance: random.Random) -> None:
    """Damage one to four places: single bytes, ranges across borders, cut files, missing files."""
    files = segments(path)[:-1]
    log = bytearray().join(each.read_bytes() for each in files)
    for _ in range(chance.randrange(1, 4)):
        at = chance.choice([chance.randrange(len(log)), chance.randrange(1, 9) * SEGMENT - 40])
        length = chance.choice([1, 80, 700, SEGMENT])
        data = chance.choice([bytes(length), chance.randbytes(length)])
        log[at : at + length] = data[: max(0, len(log) - at)]
    for number, file in enumerate(files):
        file.write_bytes(log[number * SEGMENT : (number + 1) * SEGMENT])
    if chance.random() < 0.3:
        files[chance.randrange(1, len(files))].unlink()


def test_what_is_found_is_what_one_scan_finds(whole: Path, tmp_path: Path) -> None:
    with read_small(whole) as store:
        parts = list(in_one_process(store))
        assert [isinstance(each, WholeSegment) for each in parts[:9]] == [True] * 9
        assert found(store, parts) == found(store, store.scan_pieces())
        assert not any(isinstance(each, WholeSegment) for each in parallel_scan(store)), "short"
    damaged = 0
    for seed in chance().sample(range(1000), 10):
        path = copy_store(whole, tmp_path / str(seed))
        spoil(path, random.Random(seed))
        with read_small(path, segment_size_bytes=SEGMENT) as store:
            expected = found(store, store.scan_pieces())
            damaged += any(kind == "damage" for kind, *_ in expected)
            assert found(store, in_one_process(store)) == expected, seed
    assert damaged > 4, "some write zeros over zeros"


def test_a_whole_record_that_a_recovery_did_not_prove_stays_damaged(
    whole: Path, tmp_path: Path
) -> None:
    """By itself its segment looks whole."""
    path = copy_store(whole, tmp_path / "store")
    with read_small(path) as store:
        record = list(store.scan())[50]
    offset, end = record.physical_offset, record.physical_offset + record.size
    head = b"".join(each.read_bytes() for each in segments(path))[offset : offset + 64]
    error = CorruptRecord("no record starts here", offset=offset)
    keep_damage(RealFileSystem(), path, 0, 0, [Damage(offset, end, error, None, True, head)])
    with read_small(path) as store:
        rows = found(store, in_one_process(store))
        assert [each[:3] for each in rows if each[0] == "damage"] == [("damage", offset, end)]
        assert rows == found(store, store.scan_pieces())


@attrs.frozen
class Marking:
    """An accelerator that leaves a mark when it is called, and leaves all calls to Python."""

    path: Path

    def read_run(self, *_given: object, **_named: object) -> None:
        (self.path / str(os.getpid())).touch()


def test_processes_say_the_same_and_use_the_accelerator(whole: Path, tmp_path: Path) -> None:
    path = copy_store(whole, tmp_path / "store")
    (tmp_path / "marks").mkdir()
    spoil(path, random.Random(3))
    with read_small(path, segment_size_bytes=SEGMENT) as store:
        marking: Any = Marking(tmp_path / "marks")
        accelerate.use(marking)
        parts = list(parallel_scan(store, 2))
        assert [type(each) for each in parts].count(WholeSegment) > 2
        assert found(store, parts) == found(store, store.scan_pieces())
    assert {each.name for each in marking.path.iterdir()} - {str(os.getpid())}


def test_beside_a_living_owner(whole: Path, tmp_path: Path) -> None:
    path = copy_store(whole, tmp_path / "store")
    with open_small(path), read_small(path) as store:
        assert found(store, in_one_process(store)) == found(store, store.scan_pieces())


def test_without_a_further_thread_one_process_reads_all(
    whole: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with read_small(whole) as store:
        alone = found(store, store.scan_pieces())
        monkeypatch.setattr(Thread, "start", refused)
        assert found(store, parallel_scan(store, 2)) == alone
    assert "one process reads all" in caplog.text


def test_processes_that_are_killed_are_not_needed(whole: Path) -> None:
    with read_small(whole) as store:
        alone = found(store, store.scan_pieces())
        parts = parallel_scan(store, 2)
        first = next(iter(parts))
        with suppress(psutil.NoSuchProcess):
            for worker in psutil.Process().children(recursive=True):
                if "forkserver" in " ".join(worker.cmdline()):
                    worker.kill()
        assert found(store, [first, *parts]) == alone
