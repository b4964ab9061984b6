"""Writers that are killed, round after round, with tiny segments: nobody loses, doubles or waits.

Any of them has the services at some time, and dies with them. The store stays open all the while:
no recovery comes in between. At the end every acknowledged message is there once, in the order of
its writer, the queue has them all, and ``verify`` finds nothing.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import attrs
import pytest

import lakelog
from lakelog.files import RealFileSystem
from lakelog.ownership import is_owned
from tests.processes.test_killed import verified
from tests.support.killing import ROOT

WRITERS: Final = 8
SEGMENT: Final = "64KiB"
BUSY_MS: Final = 20_000
"""A put that waits for longer is refused, and its writer ends by itself."""
WRITER: Final = """
import os, sys, lakelog
path, flush, acknowledged = sys.argv[1:]
name = os.getpid()
with lakelog.open(path, flush=flush, segment_size_bytes="64KiB",
                  os_page_cache_busy_timeout_ms=20_000) as store:
    print("open", flush=True)
    with open(f"{acknowledged}/{name}", "w") as told:
        for number in range(1 << 40):
            body = b"%d:%d:" % (name, number) + bytes(number * 97 % 3000)
            result = store.put(lakelog.Message("t", body, queue_id=0, keys=str(number)))
            assert result.status is lakelog.PutStatus.PUT_OK
            print(number, file=told, flush=True)
"""


@attrs.frozen
class Writers:
    """Processes that put as fast as they can."""

    path: Path
    acknowledged: Path
    flush: str
    living: list[subprocess.Popen[str]] = attrs.field(factory=list)

    def begin(self) -> None:
        """One more."""
        command = [sys.executable, "-c", WRITER, str(self.path), self.flush, str(self.acknowledged)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True)
        self.living.append(process)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "open\n", process.stderr.read()

    def kill(self, process: subprocess.Popen[str]) -> None:
        """It has not ended by itself."""
        with process:
            assert process.poll() is None, process.communicate()[1]
            process.kill()
        self.living.remove(process)

    def end(self) -> None:
        """Leave none behind."""
        for each in self.living:
            each.kill()

    def told(self) -> set[str]:
        """What was acknowledged."""
        return {
            f"{each.name}:{number}"
            for each in self.acknowledged.iterdir()
            for number in each.read_text().split("\n")[:-1]  # the last one may be cut
        }


@contextmanager
def writers(folder: Path, flush: str) -> Iterator[Writers]:
    """Some that put; none is left behind."""
    acknowledged = folder / "acknowledged"
    acknowledged.mkdir()
    found = Writers(folder / "store", acknowledged, flush)
    with ExitStack() as stack:
        for _ in range(WRITERS):
            found.begin()
        stack.callback(found.end)
        yield found


def play(folder: Path, flush: str, rounds: int, seed: int) -> int:
    """Kill one or more in each round; how many messages were acknowledged."""
    choose = random.Random(seed)
    with writers(folder, flush) as all_of_them:
        for _ in range(rounds):
            before = len(all_of_them.told())
            while len(all_of_them.told()) < before + choose.randrange(1, 60):
                assert all(each.poll() is None for each in all_of_them.living)
            for each in choose.sample(all_of_them.living, choose.choice([1, 1, 1, 2, 4])):
                all_of_them.kill(each)
            while len(all_of_them.living) < WRITERS:
                all_of_them.begin()
        with lakelog.open(folder / "store", flush=flush, segment_size_bytes=SEGMENT) as last:
            for each in list(all_of_them.living):
                all_of_them.kill(each)
            return judged(last, all_of_them.told())


def judged(store: lakelog.Store, told: set[str]) -> int:
    """Each acknowledged message is there once, and those of one writer in their order."""
    assert store.wait_dispatched(timeout_ms=60_000)
    found = [bytes(each.body).split(b":")[:2] for each in store.scan()]
    last: dict[bytes, int] = {}
    for name, number in found:
        assert last.get(name, -1) == int(number) - 1
        last[name] = int(number)
    assert told <= {f"{name.decode()}:{number.decode()}" for name, number in found}
    assert store.queue_bounds("t", 0) == (0, len(found))
    return len(told)


def check(folder: Path, flush: str, rounds: int, seed: int) -> None:
    assert play(folder, flush, rounds, seed) > rounds
    assert not is_owned(RealFileSystem(), folder / "store")
    assert not (folder / "store" / "abort").exists(), "the last one closes the store"
    verified(folder / "store")


@pytest.mark.parametrize("flush", ["none", "timed", "inline", "group-commit"])
def test_writers_are_killed(tmp_path: Path, flush: str) -> None:
    check(tmp_path, flush, 2, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("flush", ["none", "timed", "inline", "group-commit"])
def test_writers_are_killed_often(tmp_path: Path, flush: str) -> None:
    check(tmp_path, flush, 75, seed=2)
