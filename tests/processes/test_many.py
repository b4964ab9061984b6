"""Very many processes on one store, and processes of another PID namespace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from tests.support.forked import FORKS
from tests.support.waiting import until

PATIENCE_S: Final = 200
SETTINGS: Final[dict[str, Any]] = {
    "flush": "none",
    "segment_size_bytes": 1 << 20,
    "attach": {"reconnect_timeout_ms": PATIENCE_S * 1000},
}
PUTS: Final = 5
BESIDE: Final = """
import json, os, sys
import lakelog

with lakelog.open(sys.argv[1], **json.loads(sys.argv[2])) as store:
    print(store.role, os.getpid(), flush=True)
    for line in sys.stdin:
        print(store.put(lakelog.Message("t", line.encode(), queue_id=0)).queue_offset, flush=True)
"""


def put_together(path: Path, name: int, all_there: Barrier) -> None:
    """Put, wait until everybody has it open, and put again."""
    with lakelog.open(path, **SETTINGS) as store:
        for turn in range(2):
            if turn:
                all_there.wait(PATIENCE_S)
            for number in range(PUTS):
                body = b"%d %d" % (name, turn * PUTS + number)
                store.put(lakelog.Message("t", body, queue_id=0))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_very_many_have_it_open_at_once(count: int, tmp_path: Path) -> None:
    all_there = FORKS.Barrier(count)
    processes = [
        FORKS.Process(target=put_together, args=(tmp_path, name, all_there), daemon=True)
        for name in range(count)
    ]
    for each in processes:
        each.start()
    for each in processes:
        each.join()
    assert Counter(each.exitcode for each in processes) == {0: count}
    with lakelog.open(tmp_path, **SETTINGS) as store:
        assert store.recovery is not None
        assert store.recovery.clean
        found = [bytes(each.body).split() for each in store.read("t", 0)]
    assert len(found) == count * 2 * PUTS
    for name in range(count):
        numbers = [int(number) for each, number in found if int(each) == name]
        assert numbers == list(range(2 * PUTS))


def elsewhere(path: Path) -> subprocess.Popen[str]:
    """A process that has the store open in a PID namespace of its own."""
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    program = [sys.executable, "-c", BESIDE, str(path), json.dumps(SETTINGS)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([*command, *program], **pipes)


def said(process: subprocess.Popen[str], line: str = "") -> list[str]:
    assert process.stdin is not None
    assert process.stdout is not None
    if line:
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
    return process.stdout.readline().split()


def test_a_process_of_another_pid_namespace_is_one_like_others(tmp_path: Path) -> None:
    """Locks say who lives, and no process number does."""
    if os.geteuid() or shutil.which("unshare") is None:
        reason = "unshare (util-linux) and the superuser's rights are needed for a PID namespace"
        assert not os.environ.get("CI"), reason
        pytest.skip(reason)
    with elsewhere(tmp_path) as first:
        assert said(first) == ["owner", "1"]
        assert said(first, "a") == ["0"]
        with lakelog.open(tmp_path, **SETTINGS) as store:
            assert store.role == "attach"
            assert store.put(lakelog.Message("t", b"b", queue_id=0)).queue_offset == 1
            assert said(first, "c") == ["2"]
            first.kill()
            until(lambda: store.role == "owner", "nobody has the services")
            with elsewhere(tmp_path) as second:
                assert said(second)[0] == "attach"
                assert said(second, "d") == ["3"]
                second.kill()
            assert store.put(lakelog.Message("t", b"e", queue_id=0)).queue_offset == 4
            assert store.wait_dispatched()
            found = [bytes(each.body).strip() for each in store.read("t", 0)]
            assert found == [b"a", b"b", b"c", b"d", b"e"]
