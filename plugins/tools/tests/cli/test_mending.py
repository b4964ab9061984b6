"""``lakelog recover``, ``repair`` and ``rebuild``: what they do, and what they say of it."""

from __future__ import annotations

import json
import os
import pty
import shutil
from pathlib import Path

import pytest

import lakelog as library
from core.tests.store.support import tree
from plugins.tools.tests.cli.conftest import Run, spoil_second


def _segment(store: Path) -> Path:
    return store / "commitlog" / f"{0:020}"


def _spoil(store: Path, body: bytes) -> None:
    """Change the first byte of the body of a message."""
    data = bytearray(_segment(store).read_bytes())
    data[data.index(body)] ^= 1
    _segment(store).write_bytes(data)


@pytest.fixture
def closed(lakelog: Run, store: Path) -> Path:
    """The store with three more messages of other bodies."""
    done = lakelog("put", store, "orders", "first-body", "second-body", "third-body", "--queue", 1)
    assert done.returncode == 0, done.stderr
    return store


@pytest.fixture
def crashed(closed: Path) -> Path:
    """The same store, not closed cleanly."""
    (closed / "abort").write_text("1")
    return closed


@pytest.fixture
def damaged(closed: Path) -> Path:
    """The same store; one of the messages in the middle is damaged."""
    _spoil(closed, b"second-body")
    return closed


# --- recover ---


def test_a_recovery_says_what_was_found_and_leaves_a_clean_stop(
    lakelog: Run, crashed: Path
) -> None:
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


@pytest.mark.parametrize("policy", ["refuse", "skip", "truncate"])
def test_the_policy_decides_what_becomes_of_whole_records_behind_damage(
    lakelog: Run, crashed: Path, policy: str
) -> None:
    _spoil(crashed, b"second-body")
    done = lakelog("recover", crashed, "--on-damage", policy)
    assert done.returncode == {"refuse": 3, "skip": 1, "truncate": 0}[policy]
    if policy == "refuse":
        assert "on_damage" in done.stderr
        assert (crashed / "abort").exists()
        return
    with library.open(crashed, mode="read") as store:
        left = sum(1 for _ in store.scan(on_damage=lambda _: None))
        assert left == (5 if policy == "skip" else 4)


def test_damage_that_stays_is_told_with_its_place_and_what_mends_it(
    lakelog: Run, crashed: Path
) -> None:
    assert lakelog("recover", crashed, "--on-damage", "ignore").returncode == 2
    _spoil(crashed, b"second-body")
    planned = lakelog("recover", crashed, "--dry-run", "--json")
    assert planned.returncode == 1
    (row,) = map(json.loads, planned.stdout.splitlines())
    assert (row["clean"], row["records"], row["cut"], row["dry_run"]) == (False, 5, [], True)
    (damage,) = row["damage"]
    assert damage["path"] == str(_segment(crashed))
    assert damage["end_offset"] > damage["offset"] > 0
    done = lakelog("recover", crashed)
    assert done.returncode == 1
    assert f"bytes stay: {_segment(crashed)}: record at offset" in done.stdout
    assert "`lakelog repair`" in done.stdout


def test_a_lost_end_is_told_and_the_code_is_1(lakelog: Run, crashed: Path) -> None:
    _spoil(crashed, b"third-body")
    refused = lakelog("recover", crashed)
    assert refused.returncode == 3
    assert "on_damage='cut-end'" in refused.stderr
    diagnosed = lakelog("doctor", crashed)
    assert diagnosed.returncode == 1
    assert "--on-damage cut-end" in diagnosed.stdout
    assert "lakelog repair" not in diagnosed.stdout
    done = lakelog("recover", crashed, "--on-damage", "cut-end")
    assert done.returncode == 1
    assert "missing   " in done.stdout
    assert "checkpoint confirms it as durable" in done.stdout
    assert "can be opened" not in done.stdout


def test_what_was_not_read_is_not_vouched_for(lakelog: Run, tmp_path: Path) -> None:
    with library.open(tmp_path / "store", segment_size_bytes="64KiB") as opened:
        for _ in range(30):
            opened.put(library.Message("t", bytes(b"." * 6000), queue_id=0))
    given = ("--set", "segment_size_bytes=64KiB")
    done = lakelog("recover", tmp_path / "store", *given)
    assert done.returncode == 0, done.stderr
    assert "earlier segments were not read: `lakelog verify` reads all" in done.stdout
    assert "can be opened" not in done.stdout
    assert "can be opened" in lakelog("recover", tmp_path / "store", "--full", *given).stdout


# --- repair ---


def test_damage_is_mended_and_told(lakelog: Run, damaged: Path) -> None:
    done = lakelog("repair", damaged, "--yes")
    assert done.returncode == 0, done.stderr
    assert f"mended    {_segment(damaged)}: offset " in done.stdout
    (kept,) = (damaged / "lakelog" / "quarantine").glob("*.bytes")
    assert f"kept in {kept}" in done.stdout
    assert "lost      messages of orders/1;" in done.stdout
    assert lakelog("verify", damaged, "--queues").returncode == 0
    again = lakelog("repair", damaged, "--yes")
    assert again.returncode == 0
    assert "nothing has to be replaced" in again.stdout
    assert "are right" in again.stdout


def test_what_is_not_confirmed_changes_nothing(lakelog: Run, damaged: Path) -> None:
    before = _segment(damaged).read_bytes()
    done = lakelog("repair", damaged)
    assert done.returncode == 2
    assert "mend  " in done.stderr
    assert "--yes" in done.stderr
    planned = lakelog("repair", damaged, "--dry-run")
    assert planned.returncode == 1  # as of 'recover --dry-run': there is something to mend
    assert f"mend      {_segment(damaged)}: offset " in planned.stdout
    assert _segment(damaged).read_bytes() == before


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 1)], ids=["yes", "no"])
def test_on_a_terminal_a_repair_asks(lakelog: Run, damaged: Path, answer: bytes, code: int) -> None:
    before = _segment(damaged).read_bytes()
    master, slave = pty.openpty()
    with os.fdopen(slave) as terminal:
        os.write(master, answer)
        done = lakelog("repair", damaged, stdin=terminal)
    os.close(master)
    assert "Do it?" in done.stderr
    assert done.returncode == code
    assert (_segment(damaged).read_bytes() == before) is (code == 1)


def test_json_has_all_of_a_repair(lakelog: Run, damaged: Path) -> None:
    planned = json.loads(lakelog("repair", damaged, "--dry-run", "--json").stdout)
    done = json.loads(lakelog("repair", damaged, "--yes", "--json").stdout)
    assert (planned["dry_run"], done["dry_run"]) == (True, False)
    assert planned["steps"] == done["steps"]
    (step,) = done["steps"]
    assert (step["path"], step["possible"]) == (str(_segment(damaged)), True)
    (kept,) = done["kept"]
    assert kept["offset"] == step["offset"]
    assert Path(kept["kept"]).is_file()
    assert done["led"] == [{"topic": "orders", "queue_id": 1}]


# --- rebuild ---


def test_queues_come_back_as_they_were(
    lakelog: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(store / "consumequeue")
    assert before
    shutil.rmtree(store / "consumequeue")
    done = lakelog("rebuild", store, "--queues", "--json")
    report = json.loads(done.stdout)
    assert report.pop("seconds") >= 0
    rows = map(json.loads, lakelog("scan", store, "--json").stdout.splitlines())
    size = sum(row["size"] for row in rows)
    numbers = {"records": 3, "size_bytes": size, "damaged_places": 0, "damaged_bytes": 0}
    assert report == {**numbers, "folders": ["consumequeue"]}
    assert tree(store / "consumequeue") == before
    done = lakelog("rebuild", store)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert line.startswith("built consumequeue")
    assert " from 3 records (" in line
    monkeypatch.setenv("FORCE_COLOR", "1")  # every stream counts as a terminal
    done = lakelog("rebuild", store, "--queues")
    assert (done.returncode, "rebuilding" in done.stderr) == (0, True)
    assert done.stdout.startswith("built consumequeue")


def test_damage_is_passed_over_and_told(lakelog: Run, store: Path) -> None:
    second = spoil_second(lakelog, store)
    done = lakelog("rebuild", store, "--queues")
    assert done.returncode == 1
    assert f"damaged: {_segment(store)}: record at offset {second}" in done.stderr
    assert "from 2 records" in done.stdout
    assert "passed over 1 damaged places" in done.stdout


def test_arguments_of_a_rebuild_are_no_settings(lakelog: Run, store: Path) -> None:
    for name in ("path", "queues", "progress"):
        done = lakelog("rebuild", store, "--set", f"{name}=x")
        assert (done.returncode, done.stdout) == (2, "")
        assert "this is no setting" in done.stderr
