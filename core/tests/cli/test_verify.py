"""``lakelog verify --queues --index`` compares what is built from the log with the log."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from core.tests.cli.conftest import HAS_INDEX, Run

UNIT = struct.Struct(">qiq")
ENTRIES = 100


def _queue_file(store: Path) -> Path:
    return store / "consumequeue" / "orders" / "1" / f"{0:020}"


def _spoil(store: Path) -> Path:
    path = _queue_file(store)
    data = bytearray(path.read_bytes())
    data[UNIT.size + 11] ^= 1  # the second unit's size
    path.write_bytes(data)
    return path


def _ghosts(store: Path) -> Path:
    """As many units of no record as fit in a file, in a queue of their own."""
    path = store / "consumequeue" / "ghost" / "0" / f"{0:020}"
    path.parent.mkdir(parents=True)
    path.write_bytes(UNIT.pack(77, 7, 7) * ENTRIES)
    return path


def test_without_options_only_the_log_is_checked(lakelog: Run, store: Path) -> None:
    _spoil(store)
    done = lakelog("verify", store)
    assert (done.returncode, done.stderr) == (0, "")
    assert "derived" not in done.stdout


def test_queues_that_are_right_are_said_to_be(lakelog: Run, store: Path) -> None:
    done = lakelog("verify", store, "--queues")
    assert (done.returncode, done.stderr) == (0, "")
    assert "derived  0 problems in consume-queue" in done.stdout.splitlines()[-1]


def test_a_problem_is_told_with_file_and_place_and_a_rebuild_mends_it(
    lakelog: Run, store: Path
) -> None:
    path = _spoil(store)
    done = lakelog("verify", store, "--queues")
    assert done.returncode == 1
    assert f"problem: {path}: at byte {UNIT.size}: the unit is not that of its rec" in done.stderr
    assert "DAMAGED" in done.stdout
    assert "derived  1 problems in consume-queue; `lakelog rebuild` mends them" in done.stdout
    assert lakelog("rebuild", store, "--queues").returncode == 0
    assert lakelog("verify", store, "--queues").returncode == 0


def test_twenty_of_a_kind_are_told_and_the_rest_is_counted(lakelog: Run, store: Path) -> None:
    path = _ghosts(store)
    done = lakelog("verify", store, "--queues")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 21
    assert all(str(path) in line for line in lines[:20])
    assert lines[20].endswith(f": {ENTRIES - 20} more")
    assert f"{ENTRIES} problems" in done.stdout


def test_json_tells_all(lakelog: Run, store: Path) -> None:
    path = _ghosts(store)
    done = lakelog("verify", store, "--queues", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    *problems, summary = map(json.loads, done.stdout.splitlines())
    assert [each["position"] for each in problems] == [n * UNIT.size for n in range(ENTRIES)]
    assert {each["path"] for each in problems} == {str(path)}
    assert {each["kind"] for each in problems} == {"problem"}
    assert summary["kind"] == "summary"
    assert (summary["whole"], summary["problems"], summary["records"]) == (False, ENTRIES, 3)
    assert summary["compared"] == ["consume-queue"]


def test_json_of_a_whole_log_is_its_summary(lakelog: Run, store: Path) -> None:
    done = lakelog("verify", store, "--json")
    (summary,) = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 0
    assert summary["whole"] is True
    assert summary["compared"] == []


@pytest.mark.skipif(not HAS_INDEX, reason="needs the plugin hash-index")
@pytest.mark.parametrize("option", ["--index", "--all"])
def test_the_index_is_compared_too(lakelog: Run, store: Path, option: str) -> None:
    assert lakelog("put", store, "orders", "d", "--keys", "k").returncode == 0
    assert lakelog("verify", store, option).returncode == 0
    shutil.rmtree(store / "index")
    done = lakelog("verify", store, option)
    assert done.returncode == 1
    assert f"problem: {store / 'index'}: at byte 0: keys are missing in the index" in done.stderr
    assert "hash-index" in done.stdout


def test_an_index_that_nothing_can_check_is_an_error(lakelog: Run, store: Path) -> None:
    queues_alone = 'dispatchers=["consume-queue"]'
    done = lakelog("verify", store, "--index", "--set", queues_alone)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing here can check the index" in done.stderr


@pytest.mark.parametrize("stopped", ["cleanly", "by a crash"])
def test_a_directory_in_place_of_the_checkpoint(lakelog: Run, store: Path, stopped: str) -> None:
    (store / "checkpoint").unlink()
    (store / "checkpoint").mkdir()
    if stopped == "by a crash":
        (store / "abort").touch()
    done = lakelog("verify", store, "--all")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"{store}/checkpoint: at byte 0: the checkpoint cannot be read" in done.stderr
    assert "expected a file of 4096 bytes, found cannot read: Is a directory" in done.stderr
    mended = lakelog("recover", store)
    assert mended.returncode == 3
    assert f"{store}/checkpoint: cannot read: Is a directory; a file belongs there" in mended.stderr
