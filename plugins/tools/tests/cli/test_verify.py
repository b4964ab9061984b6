"""``lakelog verify --queues --index`` compares queues and index with the log."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lakelog_cli.app import make_app
from lakelog_testing.samples import copy_store
from plugins.tools.tests.cli.conftest import ENVIRON, HAS_INDEX, Run

UNIT = struct.Struct(">qiq")
ENTRIES = 100


def _queue_file(store: Path) -> Path:
    return store / "consumequeue" / "orders" / "1" / f"{0:020}"


def test_a_problem_is_told_with_file_and_place_and_a_rebuild_mends_it(
    lakelog: Run, store: Path
) -> None:
    path = _queue_file(store)
    data = bytearray(path.read_bytes())
    data[UNIT.size + 11] ^= 1  # the second unit's size
    path.write_bytes(data)
    log_alone = lakelog("verify", store)
    assert (log_alone.returncode, log_alone.stderr) == (0, "")
    assert "derived" not in log_alone.stdout
    done = lakelog("verify", store, "--queues")
    assert done.returncode == 1
    assert f"problem: {path}: at byte {UNIT.size}: the unit differs from its record" in done.stderr
    assert "DAMAGED" in done.stdout
    assert "derived   1 problems in consume-queue\n" in done.stdout
    assert "next      `lakelog rebuild` builds queues and index anew" in done.stdout
    assert lakelog("rebuild", store, "--queues").returncode == 0
    done = lakelog("verify", store, "--queues")
    assert (done.returncode, done.stderr) == (0, "")
    assert "derived   0 problems in consume-queue" in done.stdout.splitlines()[-1]


def test_twenty_of_a_kind_are_told_and_the_rest_is_counted(lakelog: Run, store: Path) -> None:
    path = store / "consumequeue" / "ghost" / "0" / f"{0:020}"
    path.parent.mkdir(parents=True)
    path.write_bytes(UNIT.pack(77, 7, 7) * ENTRIES)  # they belong to no record
    done = lakelog("verify", store, "--queues")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 21
    assert all(str(path) in line for line in lines[:20])
    assert lines[20].endswith(f": {ENTRIES - 20} more")
    assert f"{ENTRIES} problems" in done.stdout
    done = lakelog("verify", store, "--queues", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    *problems, summary = map(json.loads, done.stdout.splitlines())
    assert [each["position"] for each in problems] == [n * UNIT.size for n in range(ENTRIES)]
    assert {each["path"] for each in problems} == {str(path)}
    assert {each["kind"] for each in problems} == {"problem"}
    assert summary["kind"] == "summary"
    assert (summary["whole"], summary["problems"], summary["records"]) == (False, ENTRIES, 3)
    assert summary["compared"] == ["consume-queue"]


@pytest.mark.skipif(not HAS_INDEX, reason="needs the plugin hash-index")
def test_the_index_is_compared_too(lakelog: Run, store: Path) -> None:
    assert lakelog("put", store, "orders", "d", "--keys", "k").returncode == 0
    assert lakelog("verify", store, "--index").returncode == 0
    shutil.rmtree(store / "index")
    for option in ("--index", "--all"):
        done = lakelog("verify", store, option)
        assert done.returncode == 1
        assert f"problem: {store / 'index'}: at byte 0: keys are missing in the" in done.stderr
        assert "hash-index" in done.stdout


def test_an_index_that_nothing_can_check_is_an_error(lakelog: Run, store: Path) -> None:
    queues_alone = 'dispatchers=["consume-queue"]'
    done = lakelog("verify", store, "--index", "--set", queues_alone)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing here can check the index" in done.stderr


def test_a_directory_in_place_of_the_checkpoint(lakelog: Run, store: Path) -> None:
    (store / "checkpoint").unlink()
    (store / "checkpoint").mkdir()
    for _ in range(2):
        done = lakelog("verify", store, "--all")
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert f"{store}/checkpoint: at byte 0: the checkpoint cannot be read" in done.stderr
        assert "expected a file of 4096 bytes, found cannot open: Is a directory" in done.stderr
        (store / "abort").touch()  # as after a crash
    mended = lakelog("recover", store)
    assert mended.returncode == 3
    assert f"{store}/checkpoint: cannot open: Is a directory; a file belongs there" in mended.stderr


# --- after a crash ---

PUT_AND_DIE = """
import os, signal, sys, lakelog
path = sys.argv[1]
with lakelog.open(path, segment_size_bytes="4MiB", flush="none") as store:
    store.put(lakelog.Message("orders", b"first", keys="k0", queue_id=0))
    store.wait_dispatched()
    store.put_batch([lakelog.Message("orders", b"b%d" % n, keys=f"k{n}") for n in range(4000)])
    os.kill(os.getpid(), signal.SIGKILL)
"""
ROUNDS = 20
"""Several attempts: rarely, the dispatcher is done before the signal."""


def _summary(lakelog: Run, store: Path) -> Any:
    return json.loads(lakelog("verify", store, "--all", "--json").stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def killed_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose owner was killed before queues and index had all of the log."""
    folder = tmp_path_factory.mktemp("killed")
    for number in range(ROUNDS):
        store = folder / str(number)
        killed = subprocess.run(
            [sys.executable, "-c", PUT_AND_DIE, store], env=os.environ | ENVIRON, check=False
        )
        assert killed.returncode == -signal.SIGKILL
        if _behind(store):
            return store
    raise AssertionError("the dispatcher was done each time")


def _behind(store: Path) -> bool:
    done = CliRunner(env=ENVIRON).invoke(make_app(), ["verify", str(store), "--all", "--json"])
    return bool(json.loads(done.stdout.splitlines()[-1])["behind"])


@pytest.fixture
def crashed(killed_store: Path, tmp_path: Path) -> Path:
    """A copy of the killed store."""
    return copy_store(killed_store, tmp_path / "crashed")


def test_a_store_that_merely_crashed_is_whole_and_recover_mends_it(
    lakelog: Run, crashed: Path
) -> None:
    done = lakelog("verify", crashed, "--all")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{crashed}: crashed, whole; `lakelog recover` mends it" in done.stdout
    assert "behind    queues and index lag behind the log in " in done.stdout
    assert "rebuild" not in done.stdout
    summary = _summary(lakelog, crashed)
    assert (summary["state"], summary["whole"], summary["problems"]) == ("crashed", True, 0)
    assert lakelog("recover", crashed).returncode == 0
    done = lakelog("verify", crashed, "--all")
    assert f"{crashed}: whole" in done.stdout
    assert "next" not in done.stdout


def test_the_torn_end_of_a_log_is_no_damage(lakelog: Run, crashed: Path) -> None:
    with (crashed / "commitlog" / f"{0:020}").open("r+b") as file:
        half = file.read(50)
        file.seek(_summary(lakelog, crashed)["end_offset"])
        file.write(half)
    done = lakelog("verify", crashed, "--all")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{crashed}: crashed, whole; `lakelog recover` mends it" in done.stdout
    assert "torn     " in done.stdout
    assert lakelog("recover", crashed).returncode == 0
    assert f"{crashed}: whole" in lakelog("verify", crashed, "--all").stdout


def test_damage_in_a_store_that_crashed_is_damage(lakelog: Run, crashed: Path) -> None:
    unit = crashed / "consumequeue" / "orders" / "0" / f"{0:020}"
    before = unit.read_bytes()
    unit.write_bytes(before[:11] + b"\x01" + before[12:])
    done = lakelog("verify", crashed, "--queues")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "the unit differs from its record" in line
    unit.write_bytes(before)
    with (crashed / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(88)  # its body
        file.write(b"\xff")
    done = lakelog("verify", crashed, "--all")
    assert done.returncode == 1
    assert f"{crashed}: DAMAGED" in done.stdout
    assert [line for line in done.stderr.splitlines() if not line.startswith("damaged: ")] == []
    assert "next      `lakelog recover` mends what a crash leaves" in done.stdout
    refusing = lakelog("verify", crashed, "--set", "on_damage=truncate")
    assert refusing.returncode == 1


def test_records_that_were_durable_once_are_missed(lakelog: Run, store: Path) -> None:
    """The crash is not the cause: queues and checkpoint show that they were synced."""
    log = store / "commitlog" / f"{0:020}"
    log.write_bytes(log.read_bytes()[:98].ljust(log.stat().st_size, b"\x00"))
    (store / "abort").touch()
    done = lakelog("verify", store, "--all")
    assert done.returncode == 1
    assert "missing: records from 98 to " in done.stderr
    assert "DAMAGED" in done.stdout
    assert lakelog("recover", store, "--dry-run").returncode == 1


@pytest.mark.parametrize(("bytes_left", "said"), [(1000, "truncated"), (70_000, "too long")])
def test_a_segment_of_wrong_length_is_no_wrong_setting(
    lakelog: Run, tmp_path: Path, bytes_left: int, said: str
) -> None:
    store, size = tmp_path / "many", "segment_size_bytes=64KiB"
    for _ in range(3):
        assert lakelog("put", store, "t", "x" * 40_000, "--set", size).returncode == 0
    log = store / "commitlog" / f"{2 * 65536:020}"
    log.write_bytes(log.read_bytes()[:bytes_left].ljust(bytes_left, b"\x00"))
    done = lakelog("verify", store, "--set", size)
    assert done.returncode == 1
    assert f"{log}: the file is {said}: {bytes_left} bytes" in done.stderr
    assert "'lakelog recover'" in done.stderr
    assert "setting" not in done.stderr
    given = ("--set", size, "--on-damage", "cut-end")
    assert lakelog("recover", store, *given).returncode in {0, 1}
    assert lakelog("verify", store, "--all", "--set", size).returncode == 0
