"""Pins for slaves: they hold the log, up to the limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.files.filesystem import RealFileSystem
from lakelog.maintenance.pins import Pin, read_pins, remove_pin, write_pin
from lakelog_replication.master.server import hold_for_slaves

SEGMENT = 1000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "lakelog").mkdir()
    return tmp_path


def hold(store: Path, acked: dict[str, int], end: int, limit_bytes: int = 5 * SEGMENT) -> None:
    files = RealFileSystem()
    hold_for_slaves(files, store, acked, end, limit_bytes=limit_bytes, segment_size_bytes=SEGMENT)


def pins(store: Path) -> dict[str, int]:
    return {each.name: each.position for each in read_pins(RealFileSystem(), store)}


def test_a_slave_holds_what_it_lacks(store: Path) -> None:
    write_pin(RealFileSystem(), store, Pin("lake", 10, 0))
    hold(store, {"a": 100}, end=3000, limit_bytes=0)
    assert pins(store) == {"lake": 10}, "a limit of nothing makes none"
    hold(store, {"10.0.0.1": 1500, "fe80::1%eth0": 0}, end=3000)
    assert pins(store) == {"ha-10.0.0.1": 1500, "ha-fe80--1-eth0": 0, "lake": 10}


def test_a_pin_is_written_only_if_that_frees_a_segment(store: Path) -> None:
    for acked, expected in ((1500, 1500), (1999, 1500), (2000, 2000), (2001, 2000)):
        hold(store, {"a": acked}, end=3000)
        assert pins(store) == {"ha-a": expected}


def test_none_stays_further_behind_than_the_limit(store: Path) -> None:
    hold(store, {"a": 100, "b": 7000}, end=8500)
    assert pins(store) == {"ha-a": 3500, "ha-b": 7000}


def test_a_slave_that_has_gone_holds_its_place_up_to_the_limit(store: Path) -> None:
    hold(store, {"a": 1500}, end=3000)
    hold(store, {}, end=6000)
    assert pins(store) == {"ha-a": 1500}
    hold(store, {}, end=20_000)
    assert pins(store) == {"ha-a": 15_000}


def test_a_pin_that_was_removed_stays_away_until_the_slave_is_back(store: Path) -> None:
    hold(store, {"a": 1500}, end=3000)
    remove_pin(RealFileSystem(), store, "ha-a")
    hold(store, {}, end=20_000)
    assert pins(store) == {}
    hold(store, {"a": 19_000}, end=20_000)
    assert pins(store) == {"ha-a": 19_000}


def test_a_connected_slaves_pin_is_renewed(store: Path) -> None:
    write_pin(RealFileSystem(), store, Pin("ha-a", 1500, time_ms=1))
    hold(store, {"a": 1500}, end=3000)
    (pin,) = read_pins(RealFileSystem(), store)
    assert pin.time_ms > 1
