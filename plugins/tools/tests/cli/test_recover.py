"""``lakelog recover`` reports findings, cuts, the bytes kept in quarantine, and the next step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lakelog as library
from plugins.tools.tests.cli.conftest import Run

SIZE = 64 << 10


def _segment(store: Path) -> Path:
    return store / "commitlog" / f"{0:020}"


def _spoil(store: Path, body: bytes) -> None:
    """Change the first byte of the body of a message."""
    data = bytearray(_segment(store).read_bytes())
    data[data.index(body)] ^= 1
    _segment(store).write_bytes(data)


@pytest.fixture
def crashed(lakelog: Run, store: Path) -> Path:
    """The store with three more messages of other bodies; not closed cleanly."""
    done = lakelog("put", store, "orders", "first-body", "second-body", "third-body", "--queue", 1)
    assert done.returncode == 0, done.stderr
    (store / "abort").write_text("1")
    return store


def test_it_says_what_was_found_and_leaves_a_clean_stop(lakelog: Run, crashed: Path) -> None:
    done = lakelog("recover", crashed)
    assert done.returncode == 0, done.stderr
    assert f"{crashed}: an unclean stop" in done.stdout
    for word in ("read      from 0: ", "records   6 whole", "log       0 to", "next      nothing"):
        assert word in done.stdout
    assert not (crashed / "abort").exists()
    assert "a clean stop" in lakelog("recover", crashed).stdout


def test_a_torn_tail_is_cut_and_kept(lakelog: Run, crashed: Path) -> None:
    _spoil(crashed, b"third-body")
    before = _segment(crashed).read_bytes()
    (crashed / "checkpoint").unlink()  # which claims that it was durable
    planned = lakelog("recover", crashed, "--dry-run")
    assert (planned.returncode, _segment(crashed).read_bytes()) == (0, before)
    assert (crashed / "abort").exists()
    assert "to cut" in planned.stdout
    assert "without --dry-run does it" in planned.stdout
    done = lakelog("recover", crashed)
    assert done.returncode == 0
    (kept,) = (crashed / "lakelog" / "quarantine").glob("*.bytes")
    assert f"kept in {kept}" in done.stdout
    assert kept.read_bytes() in before


def test_damage_that_stays_is_told_with_its_place_and_what_mends_it(
    lakelog: Run, crashed: Path
) -> None:
    _spoil(crashed, b"second-body")
    done = lakelog("recover", crashed)
    assert done.returncode == 1
    assert f"bytes stay: {_segment(crashed)}: record at offset" in done.stdout
    assert "`lakelog repair`" in done.stdout


def test_json_has_all_of_it(lakelog: Run, crashed: Path) -> None:
    _spoil(crashed, b"second-body")
    done = lakelog("recover", crashed, "--json")
    assert done.returncode == 1
    (row,) = map(json.loads, done.stdout.splitlines())
    assert (row["clean"], row["records"], row["cut"], row["dry_run"]) == (False, 5, [], False)
    (damage,) = row["damage"]
    assert damage["path"] == str(_segment(crashed))
    assert damage["end_offset"] > damage["offset"] > 0


@pytest.mark.parametrize(("policy", "records"), [("skip", 5), ("truncate", 4)])
def test_the_policy_decides_what_becomes_of_whole_records_behind_damage(
    lakelog: Run, crashed: Path, policy: str, records: int
) -> None:
    _spoil(crashed, b"second-body")
    done = lakelog("recover", crashed, "--on-damage", policy)
    assert done.returncode == (policy == "skip")
    with library.open(crashed, mode="read") as store:
        assert sum(1 for _ in store.scan(on_damage=lambda _: None)) == records


def test_a_lost_end_is_told_and_the_code_is_1(lakelog: Run, crashed: Path) -> None:
    _spoil(crashed, b"third-body")
    done = lakelog("recover", crashed)
    assert done.returncode == 1
    assert "missing   " in done.stdout
    assert "checkpoint confirms it as durable" in done.stdout
    assert "can be opened" not in done.stdout


def test_what_was_not_read_is_not_vouched_for(lakelog: Run, tmp_path: Path) -> None:
    with library.open(tmp_path / "store", segment_size_bytes=SIZE) as opened:
        for _ in range(30):
            opened.put(library.Message("t", bytes(b"." * 6000), queue_id=0))
    given = ("--set", "segment_size_bytes=64KiB")
    done = lakelog("recover", tmp_path / "store", *given)
    assert done.returncode == 0, done.stderr
    assert "earlier segments were not read: `lakelog verify` reads all" in done.stdout
    assert "can be opened" not in done.stdout
    assert "can be opened" in lakelog("recover", tmp_path / "store", "--full", *given).stdout


def test_refuse_changes_nothing(lakelog: Run, crashed: Path) -> None:
    _spoil(crashed, b"second-body")
    done = lakelog("recover", crashed, "--on-damage", "refuse")
    assert done.returncode == 3
    assert "on_damage" in done.stderr
    assert (crashed / "abort").exists()


def test_a_policy_that_is_none_is_wrong_usage(lakelog: Run, store: Path) -> None:
    assert lakelog("recover", store, "--on-damage", "ignore").returncode == 2
