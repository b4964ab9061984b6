"""The real store opens and closes a store that lakelog closed: its note counts no more.

It leaves no trace of that but times of change: no `abort`, the same records, the same lengths.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import lakelog
from lakelog import Message, RecoveryReport
from lakelog.recovery.clean_stop import CLEAN_STOP_FILE, UNCHANGED
from tests.support.rows import by_kind, difference
from tests.support.twostores import alike, ours

if TYPE_CHECKING:
    from tests.oracle.java import Oracle

SEGMENT: Final = 64 << 10
JAVA, SETTINGS = alike(SEGMENT, light_queues=False)


def a_closed_store(path: Path) -> None:
    with lakelog.open(path, **SETTINGS) as store:
        for number in range(150):
            store.put(Message("topic", b"%06d" % number * 100, queue_id=0, keys=f"k{number}"))
    assert dry(path).start_reason == UNCHANGED


def dry(path: Path) -> RecoveryReport:
    return lakelog.recover(path, dry_run=True, **SETTINGS)


@pytest.mark.parametrize(
    ("count", "end"),
    [
        *((0, "shutdown"), (3, "shutdown"), (300, "shutdown"), (3, "halt")),
        pytest.param(0, "halt", marks=pytest.mark.slow),
        pytest.param(300, "halt", marks=pytest.mark.slow),
    ],
)
def test_what_the_real_store_opened_is_read(
    count: int, end: str, oracle: Oracle, tmp_path: Path
) -> None:
    a_closed_store(tmp_path)
    note = (tmp_path / "lakelog" / CLEAN_STOP_FILE).read_bytes()
    beside = lakelog.open(tmp_path, mode="read", **SETTINGS)
    assert beside.queue_bounds("t", 0) is None
    put = oracle.run(
        "PutSame", tmp_path, ["--count", str(count), "--mark", "a", "--exit", end], JAVA
    )
    assert (tmp_path / "lakelog" / CLEAN_STOP_FILE).read_bytes() == note
    assert (tmp_path / "abort").exists() == (end == "halt")
    with lakelog.open(tmp_path, mode="read", **SETTINGS) as reader:
        found = [each.physical_offset for each in reader.scan()]
    assert len(found) == 150 + count
    assert found[150:] == [row["offset"] for row in put]
    assert beside.queue_bounds("t", 0) == ((0, count) if count else None)
    beside.close()
    report = dry(tmp_path)
    assert report.start_reason != UNCHANGED
    with lakelog.open(tmp_path, **SETTINGS) as store:
        assert [each.physical_offset for each in store.scan()] == found
        end_offset = store.max_offset
    assert dry(tmp_path).start_reason == UNCHANGED
    assert dry(tmp_path).end_offset == end_offset


def test_a_kill_of_the_real_store_whose_traces_are_gone_is_noticed(
    oracle: Oracle, tmp_path: Path
) -> None:
    """Even with `abort` removed, and with the times of the log and the checkpoint set back."""
    a_closed_store(tmp_path)
    files = [tmp_path / "checkpoint", *(tmp_path / "commitlog").iterdir()]
    times = {each: each.stat() for each in files}
    oracle.run("PutSame", tmp_path, ["--count", "3", "--mark", "a", "--exit", "halt"], JAVA)
    (tmp_path / "abort").unlink()
    for each, before in times.items():
        os.utime(each, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert dry(tmp_path).start_reason != UNCHANGED
    assert len(list(lakelog.open(tmp_path, mode="read", **SETTINGS).scan())) == 153


def test_the_real_store_reads_what_lakelog_opened_by_its_note(
    oracle: Oracle, tmp_path: Path
) -> None:
    store_path = tmp_path / "store"
    a_closed_store(store_path)
    for number in range(3):
        with lakelog.open(store_path, **SETTINGS) as store:
            assert store.recovery is not None
            assert store.recovery.start_reason == UNCHANGED
            store.put(Message("topic", b"%06d" % number * 100, queue_id=0))
    found = ours(store_path, JAVA)
    assert len(by_kind(found)["msg"]) == 153
    assert difference(found, oracle.dump(store_path, JAVA)) == ""
