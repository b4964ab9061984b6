"""``lakelog work``: a pool of workers on the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from lakelog import Message
from lakelog import open as lakelog_open
from lakelog_cli import exitcodes
from tests.support.waiting import until

TASKS: Final = """
import os, time

def bill(message):
    with open("billed", "a") as file:
        file.write(f"{message.body.decode()}\\n")

def hang(message):
    bill(message)
    time.sleep(3600)

sandwich = 7
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module ``tasks``, and a store with four orders."""
    (tmp_path / "tasks.py").write_text(TASKS)
    with lakelog_open(tmp_path / "shop", segment_size_bytes="1MiB") as store:
        store.put_batch([Message("orders", b"%d" % n, queue_id=n) for n in range(4)])
    return tmp_path


def billed(folder: Path) -> list[str]:
    file = folder / "billed"
    return sorted(file.read_text().split()) if file.exists() else []


@contextmanager
def working(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "lakelog_cli.main", "work", "shop", "orders", *words]
    pipe = subprocess.PIPE
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LAKELOG_")}
    with subprocess.Popen(
        command, cwd=folder, stdout=pipe, stderr=pipe, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_pool_handles_all_and_prints_what_it_did(folder: Path) -> None:
    with working(folder, "tasks:bill", "--group", "g", "--workers=2", "--until-empty") as process:
        said, errors = process.communicate(timeout=120)
    assert (process.returncode, said) == (exitcodes.OK, "")
    assert errors.startswith("handled 4 (")
    assert errors.endswith(
        "/s), failed 0, dead letters 0, lag 0, in flight 0, workers 0, restarted 0\n"
    )
    assert billed(folder) == ["0", "1", "2", "3"]


def test_two_signals_end_it_at_once(folder: Path) -> None:
    with working(folder, "tasks:hang", "--group", "g", "--workers=1") as process:
        until(lambda: billed(folder), seconds=120)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)  # two of one kind may count as one
        process.communicate(timeout=60)
    assert process.returncode == exitcodes.INTERRUPTED


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tasks:nothing", "--group=g"], "module 'tasks' has no attribute 'nothing'"),
        (["tasks", "--group=g"], "'tasks' is not MODULE:FUNCTION, such as 'tasks:bill'"),
        (["tasks:sandwich", "--group=g"], "handle is 7"),
        (["tasks:bill", "--group=g", "--concurrency=2"], "'async def'"),
        (["tasks:bill", "--group=a b", "--workers=0"], "group"),
    ],
)
def test_wrong_usage(folder: Path, words: list[str], said: str) -> None:
    with working(folder, *words) as process:
        errors = process.communicate(timeout=120)[1]
    assert process.returncode == exitcodes.USAGE
    assert said in errors
    assert len(errors.splitlines()) == 1
