"""The dispatcher's pin: level with the table or behind it, and harmless where it cannot be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.checksum import Fingerprint
from lakelog.maintenance.pins import Pin, read_pins
from lakelog_lake.errors import LandingError
from lakelog_lake.landing.dispatcher import RENEW_MS, LandingDispatcher, PinWriter, pin_for
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.sinks.locations import location_of
from lakelog_lake.tables.position import Position
from lakelog_lake.tasks.task import LandingSource
from plugins.lake.tests.landing.table_specs import all_passes, dispatcher, per_topic
from plugins.lake.tests.landing.tables import TABLE, any_kind, make, position_in
from plugins.lake.tests.landing.test_cli import run
from plugins.lake.tests.stores import filled, open_small

FILES = RealFileSystem()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return filled(tmp_path / "s", 40)


def only(store: Path) -> Pin:
    (found,) = read_pins(FILES, store)
    return found


@any_kind
def test_it_says_what_the_table_says(kind: str, store: Path, tmp_path: Path) -> None:
    spec = TableSpec(f"{kind}:{tmp_path / 't'}")
    lander = dispatcher(LandingSource(store, "S"), spec)
    place = location_of(spec.to)
    lander.pin = pin_for(store, "S", place, place.table(spec.table))
    assert lander.one_pass() is not None
    assert only(store).position == 0  # it holds all of what is landing now
    assert lander.one_pass() is None
    head = position_in(make(kind, tmp_path / "t"))
    assert head.last is not None
    found = only(store)
    with lakelog.open(store, mode="read") as opened:
        assert found.position == head.end == opened.max_offset
    assert found.fingerprint == Fingerprint(head.last.offset, head.last.size, head.last.crc)
    assert found.destination.startswith(f"{kind}:{tmp_path / 't'}")
    assert (TABLE in found.destination or "messages" in found.destination) is (kind == "iceberg")


def test_of_several_tables_the_last_one_counts(store: Path, tmp_path: Path) -> None:
    """What is only remembered of an idle table must still be there when it is read again."""
    spec = per_topic("parquet", tmp_path / "t")
    lander = dispatcher(LandingSource(store, "S"), spec)
    place = location_of(spec.to)
    lander.pin = pin_for(store, "S", place, place.table(spec.table))
    all_passes(lander)
    before = only(store).position
    with open_small(store) as owner:
        owner.put_batch([lakelog.Message("topic-0", b"x", queue_id=0)] * 10)
    all_passes(lander)
    ends = [each.landed.end for each in lander.targets.served]
    assert len(ends) > 1
    assert only(store).position == min(ends)
    assert min(ends) >= before
    with lakelog.open(store, mode="read") as opened:
        assert min(ends) < opened.max_offset  # of a topic that has been idle
    lander.finish()
    assert lander.one_pass() is None


def test_it_is_renewed_though_nothing_lands(tmp_path: Path) -> None:
    (tmp_path / "lakelog").mkdir()
    now_ms, five = 1_000_000, Position(0, 5, Fingerprint(1, 4, 9))
    pin = PinWriter(tmp_path, "n", "d", lambda: now_ms)
    for later_ms, renewed_ms in (
        (0, 1_000_000),
        (RENEW_MS - 1, 1_000_000),
        (1, 1_000_000 + RENEW_MS),
    ):
        now_ms += later_ms
        pin.renew(five)
        assert only(tmp_path).time_ms == renewed_ms
    pin.renew(Position(0, 6, Fingerprint(1, 5, 9)))
    assert only(tmp_path).position == 6


def test_where_lakelog_never_owned_anything_none_is_written(tmp_path: Path) -> None:
    PinWriter(tmp_path, "n", "d").renew(Position(0, 5))
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_may_be_written_landing_goes_on(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: inner(path, mode) and not mode & os.W_OK)
    assert run("dispatch", store, "--to", f"parquet:{tmp_path / 't'}", "--once").exit_code == 0
    assert read_pins(FILES, store) == ()


def test_one_that_cannot_be_written_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(RealFileSystem):
        def rename(self, source: Path, target: Path) -> None:
            raise OSError(28, "No space left on device", str(target))

    (tmp_path / "lakelog").mkdir()
    pin = PinWriter(tmp_path, "n", "d", files=Full())
    for _ in range(3):
        pin.renew(Position(0, 5))
    assert [each.message for each in caplog.records] == [
        f"the pin 'n' cannot be written: [Errno 28] No space left on device: "
        f"'{tmp_path}/lakelog/followers/n.json'"
    ]


def test_a_run_that_fails_before_anything_has_landed_holds_nothing(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to: tuple[Any, ...] = ("dispatch", store, "--to", f"parquet:{tmp_path / 't'}", "--once")
    known: list[int] = []
    inner = LandingDispatcher._settle

    def failing(lander: LandingDispatcher, *given: Any) -> Any:
        known.append(only(store).position)
        if len(known) == 2:
            inner(lander, *given)
        raise LandingError("no")

    with monkeypatch.context() as patch:
        patch.setattr(LandingDispatcher, "_settle", failing)
        assert run(*to).exit_code == 2
        assert known == [0]  # it was there while rows were written
        assert read_pins(FILES, store) == ()
        assert run(*to).exit_code == 2
        assert known == [0, 0]
        assert only(store).position == 0  # something has landed, whatever failed then


def test_a_pin_that_was_there_before_a_failure_stays(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Any:
        raise LandingError("no")

    PinWriter(store, "mine", "somebody's").renew(Position(0, 0))
    monkeypatch.setattr(LandingDispatcher, "_settle", failing)
    to = ("dispatch", store, "--to", f"parquet:{tmp_path / 't'}", "--once", "--pin", "mine")
    assert run(*to).exit_code == 2
    assert only(store).name == "mine"


def test_the_options(store: Path, tmp_path: Path) -> None:
    to: tuple[Any, ...] = ("dispatch", store, "--to", f"parquet:{tmp_path / 't'}", "--once")
    assert run(*to, "--no-pin").exit_code == 0
    assert read_pins(FILES, store) == ()
    assert run(*to, "--pin", "mine").exit_code == 0
    assert run(*to).exit_code == 0
    names = [each.name for each in read_pins(FILES, store)]
    assert len(names) == 2
    assert "mine" in names
    assert run(*to, "--pin", "../x").exit_code == 2
