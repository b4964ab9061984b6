"""``lakelog pins``: listing and removing the pins of followers."""

from __future__ import annotations

import json
from pathlib import Path

from lakelog.files.filesystem import RealFileSystem
from lakelog.maintenance.pins import Pin, pin_file, read_pins, write_pin
from plugins.tools.tests.cli.conftest import Run

FILES = RealFileSystem()


def test_pins_are_listed_with_what_they_hold(lakelog: Run, store: Path) -> None:
    write_pin(FILES, store, Pin("lake", 100, 1_700_000_000_000, "iceberg:/lake"))
    done = lakelog("pins", store, "--json")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    held = row.pop("held_bytes")
    assert row == {
        "name": "lake",
        "position": 100,
        "time": "2023-11-14T22:13:20+00:00",
        "destination": "iceberg:/lake",
        "problem": None,
    }
    assert 100 < held < 65536
    assert lakelog("pins", "list", store).stdout == (
        f"lake\t100\t{held}\t2023-11-14T22:13:20+00:00\ticeberg:/lake\t-\n"
    )
    short = lakelog("pins", store, "--json", "--set", "maintenance.pin_expires_after_ms=1000")
    expired = json.loads(short.stdout)
    assert (expired["held_bytes"], expired["problem"]) == (0, "it has expired")


def test_a_damaged_pin_is_told_and_removed(lakelog: Run, store: Path) -> None:
    write_pin(FILES, store, Pin("good", 100, 0))
    pin_file(store, "bad").write_bytes(b"{")
    done = lakelog("pins", store, "--json")
    assert json.loads(done.stdout.splitlines()[0])["position"] is None
    assert "nothing of the log is deleted" in done.stderr
    write_pin(FILES, store, Pin("good", 100, 10**20))
    assert f"\t{10**20} ms\t" in lakelog("pins", store).stdout
    assert lakelog("pins", "remove", store, "bad").returncode == 0
    assert [each.name for each in read_pins(FILES, store)] == ["good"]


def test_a_pin_of_another_log_is_told_until_it_expires(lakelog: Run, store: Path) -> None:
    write_pin(FILES, store, Pin("lake", 1 << 40, 1_700_000_000_000))
    done = lakelog("pins", store, "--json")
    row = json.loads(done.stdout)
    assert row["position"] is None
    assert row["held_bytes"] > 100
    assert "is of another log" in row["problem"]
    assert "is of another log" in done.stderr
    done = lakelog("pins", store, "--json", "--set", "maintenance.pin_expires_after_ms=1000")
    assert (json.loads(done.stdout)["problem"], done.stderr) == ("it has expired", "")


def test_what_is_not_there_is_not_removed(lakelog: Run, store: Path) -> None:
    write_pin(FILES, store, Pin("lake", 100, 0))
    done = lakelog("pins", "remove", store, "lake", "lke")
    assert done.returncode == 2
    assert "do you mean 'lake'?" in done.stderr
    assert len(read_pins(FILES, store)) == 1
    assert lakelog("pins", "remove", store / "nowhere", "lake").returncode == 3
