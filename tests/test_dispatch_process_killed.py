"""An owner and the process that dispatches for it, killed at any instant: nothing is missing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import lakelog
from core.tests.services.support import eventually, is_alive
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.pages.page_view import PageView
from lakelog_doctor.check import check
from lakelog_testing.signals import hold
from tests.support.killing import ROOT
from tests.support.rows import by_kind, difference
from tests.support.twostores import JAVA, SETTINGS, compare, derived, ours, recovered

if TYPE_CHECKING:
    from tests.oracle.java import Oracle

AWAY: Final[dict[str, Any]] = {
    **SETTINGS,
    "writer": "file",
    "flush": "timed",
    "services": {"dispatch": "process"},
    "attach": {"listen": False},
}
FILES: Final = RealFileSystem()


def dispatcher(path: Path) -> int:
    """The process that dispatches, as the owner's page says; 0 where none does."""
    page = PageView.open(FILES, path)
    pid = page.dispatcher[0] if page is not None else 0
    return pid if page is not None and pid != page.owner[0] and is_alive(pid) else 0


def kill_both(path: Path, chance: random.Random, seconds: float, kills: int) -> set[int]:
    """Kill the child now and then, at last the owner; offsets of acknowledged messages."""
    command = [sys.executable, "-m", "tests.support.putting", str(path), json.dumps(AWAY), "7"]
    lines: list[bytes] = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        telling = threading.Thread(target=lambda: lines.extend(owner.stdout or ()))
        telling.start()
        eventually(lambda: lines and dispatcher(path))
        for _ in range(kills):
            time.sleep(chance.uniform(0, 2 * seconds / (kills + 1)))
            if pid := dispatcher(path):
                os.kill(pid, signal.SIGKILL)
        last = dispatcher(path)
        owner.kill()
        telling.join()
    eventually(lambda: not last or not is_alive(last), 5)  # it does not outlive its owner
    return {int(line) for line in lines if line.endswith(b"\n")}


def findable(store: lakelog.Store, acknowledged: set[int]) -> None:
    """Every acknowledged message is in its queue, and by its key in the index, just once."""
    found: list[int] = []
    for info in store.queues():
        messages = store.read(info.topic, info.queue_id)
        found += [each.physical_offset for each in messages if not info.topic.startswith("%LMQ%")]
    assert len(found) == len(set(found))
    assert acknowledged <= set(found)
    for offset in list(acknowledged)[:20]:
        message = store.look_up(offset)
        for key in message.keys:
            hits = store.query_offsets(message.topic, key, max_count=100_000)
            assert hits.count(offset) == 1


def rounds(path: Path, count: int, seconds: float, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    acknowledged: set[int] = set()
    for _ in range(count):
        acknowledged |= kill_both(path, chance, chance.uniform(0.2, 2) * seconds, kills)
        with lakelog.open(path, **{**AWAY, "services": {"dispatch": "thread"}}) as store:
            assert store.dispatch_failure is None
            findable(store, acknowledged)
        assert [str(each) for each in check(path, queues=True, index=True, **AWAY)] == []


def test_killed_in_a_few_rounds(tmp_path: Path) -> None:
    rounds(tmp_path / "store", 2, 0.7, 1, seed=3)


def test_a_stopped_process_goes_with_its_owner(tmp_path: Path) -> None:
    """It cannot notice that its socket ended; the system kills it, and the next owner can come."""
    path = tmp_path / "store"
    command = [sys.executable, "-m", "tests.support.putting", str(path), json.dumps(AWAY), "7"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as owner:
        eventually(lambda: dispatcher(path))
        child = dispatcher(path)
        hold(child)
        owner.kill()
    eventually(lambda: not is_alive(child), 5)
    with lakelog.open(path, **{**AWAY, "services": {"dispatch": "thread"}}) as store:
        assert store.dispatch_failure is None


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(4))
def test_killed_in_many_rounds(tmp_path: Path, seed: int) -> None:
    rounds(tmp_path / "store", 12, 1.5, 3, seed=seed)


def test_the_real_store_takes_what_such_a_kill_left(oracle: Oracle, tmp_path: Path) -> None:
    path = tmp_path / "store"
    kill_both(path, random.Random(5), 0.8, 1)
    copy = recovered(path)
    found = ours(copy)
    compare(path, found, oracle.dump(path, JAVA))
    assert by_kind(found)["rec"]
    before = derived(copy)
    assert difference(found, oracle.dump(copy, JAVA, in_place=True)) == ""
    assert derived(copy) == before
