"""The cleaner keeps the part of the log that a slave lacks, up to the limit."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakelog
from lakelog.files.filesystem import RealFileSystem
from lakelog.maintenance.pins import read_pins
from plugins.replication.tests.replica.copies import (
    SEGMENT,
    bodies,
    log_of,
    replica,
    stopped,
    until,
)
from plugins.replication.tests.replica.test_lakelog_master import leading, message

pytestmark = pytest.mark.timeout(300)
HOLD = 8 * SEGMENT
CLEANING = {
    "cleaner": "retention",
    "retention": {"max_segments": 2, "delete_interval_ms": 0, "delete_files_batch_max": 100},
}


def pin_of(path: Path) -> int:
    """Return the offset of the slave's pin; -1 without one."""
    found = {each.name: each.position for each in read_pins(RealFileSystem(), path)}
    return found.get("ha-127.0.0.1", -1)


def fill(store: lakelog.Store, segments: int) -> None:
    due, number = store.max_offset + segments * SEGMENT, 0
    while store.max_offset < due:
        store.put(message(number))
        number += 1
    store.flush()


def clean(store: lakelog.Store) -> int:
    """Run the cleaner; return the minimum of the log afterwards."""
    assert store.wait_dispatched()
    store.delete_expired()
    return store.min_offset


@pytest.mark.parametrize("learner", [False, True])
def test_a_slave_holds_what_it_lacks_up_to_the_limit(tmp_path: Path, *, learner: bool) -> None:
    path, place = tmp_path / "master", tmp_path / "copy"
    with leading(path, 0, CLEANING, hold_bytes=HOLD) as (store, address):
        fill(store, 1)
        with replica(place, address, learner=learner) as copy:
            until(lambda: copy.max_offset == store.max_offset)
            until(lambda: pin_of(path) >= 0)
        fill(store, 5)  # while the slave is disconnected
        assert clean(store) <= copy_end(place)
        with replica(place, address, learner=learner) as copy:
            until(lambda: copy.max_offset == store.max_offset)
            if not learner:  # the pin of a counted slave follows its reports
                until(lambda: store.max_offset - pin_of(path) < 2 * SEGMENT)
                assert clean(store) > 2 * SEGMENT
            assert bodies(copy)[-1] == bodies(store)[-1]
        fill(store, 12)
        until(lambda: pin_of(path) >= store.max_offset - HOLD)
        first = clean(store)
        assert copy_end(place) < first <= store.max_offset - HOLD
        assert first > store.max_offset - HOLD - SEGMENT
        error = stopped(place, address, learner=learner)
        assert "deleted" in str(error)
        assert not error.is_mended
        with replica(tmp_path / "new", address, history="last") as copy:
            until(lambda: copy.max_offset == store.max_offset)
            end, start = store.max_offset, copy.min_offset
        first = store.min_offset
        assert log_of(tmp_path / "new", end) == log_of(path, end)[start - first :]


def copy_end(path: Path) -> int:
    with lakelog.open(path, mode="read") as store:
        return store.max_offset
