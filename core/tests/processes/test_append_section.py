"""The append section: no hole, no lost or doubled record, nobody stuck, whoever dies where."""

from __future__ import annotations

import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from core.tests.processes import tinylog
from core.tests.processes.dying import die, fork
from core.tests.processes.tinylog import RECORD, Failed, MakeLock, TinyLog
from lakelog.errors import PutRefused
from lakelog.processes import append_section as section
from lakelog.processes import locks as appendlock
from lakelog.processes import queue_table as queuetable
from lakelog.processes.append_section import AppendLock
from lakelog.processes.shared_page import APPENDED, INTENT_END, INTENT_START, SEVERAL
from lakelog.results import PutStatus
from lakelog_testing import interrupted
from tests.support.sampling import at_every, every

STEPS = (section, appendlock, tinylog, queuetable)
ROLES = pytest.mark.parametrize("several", [0, 1], ids=["alone", "several"])


@at_every(83)
@ROLES
def test_a_death_at_any_step_of_an_append(tmp_path: Path, several: int, stride: int) -> None:
    """In a queue that is new, and in one that is there; the next append finds all in order."""
    log = TinyLog.make(tmp_path)
    log.page.words[SEVERAL] = several
    expected: list[tuple[int, int]] = []
    for step in every(stride):
        queue, number = step % 2 and step, 10 * step
        lived = not die(step, STEPS, partial(_append, tmp_path, queue, [number] * 2))
        log.append(0, [number + 1])
        found = log.records()
        assert found[-1] == (0, number + 1)
        between = found[len(expected) : -1]
        assert between in ([], [(queue, number)] * 2)
        assert between or not lived
        expected = found
        if lived:
            break
    assert step > 100


def _append(path: Path, queue: int, numbers: list[int]) -> None:
    TinyLog.open(path).append(queue, numbers)


@at_every(101)
def test_a_death_at_any_step_of_a_repair(tmp_path: Path, stride: int) -> None:
    log = TinyLog.make(tmp_path)
    log.page.words[SEVERAL] = 1
    for committed in (False, True):
        for step in every(stride):
            before = log.records()
            dead = fork(partial(_dies_inside, tmp_path, committed))
            assert os.waitpid(dead, 0)[1] == signal.SIGKILL
            assert log.page.words[INTENT_END]
            lived = not die(step, STEPS, lambda: TinyLog.open(tmp_path).inside(list))
            log.inside(list)
            log.records()  # whole without an append, too
            log.append(1, [step])
            assert log.records() == [*before, *([(7, 5)] if committed else []), (1, step)]
            if lived:
                break
        assert step > 50


def _dies_inside(path: Path, committed: bool) -> None:
    log = TinyLog.open(path)
    log.section.enter()
    start, words = log.page.words[APPENDED], log.page.words
    log.section.begin(start + RECORD.size)
    record = RECORD.pack(8, log.table.next(("t", 7)), 5)
    os.pwrite(log.descriptor, record if committed else record[:9], start)
    if committed:
        words[APPENDED] = start + RECORD.size
    os.kill(os.getpid(), signal.SIGKILL)


def test_ctrl_c_at_any_step_of_an_append(tmp_path: Path) -> None:
    log = TinyLog.make(tmp_path)
    other = TinyLog.open(tmp_path)
    for number, step in enumerate(every(3)):
        log.page.words[SEVERAL] = number % 2
        packages = "append_section", "locks", "tinylog"
        came = interrupted(partial(log.append, 0, [step]), step, packages)
        with ThreadPoolExecutor(1) as thread:  # else it could take a lock that was left for its own
            thread.submit(log.append, 1, [step]).result()
            thread.submit(other.append, 2, [step]).result()
        assert log.records()[-2:] == [(1, step), (2, step)]
        if came.place is None:
            break
    assert step > 20


def test_a_process_that_is_stopped_between_its_appends_is_not_waited_for(tmp_path: Path) -> None:
    log = TinyLog.make(tmp_path)
    alone = fork(partial(_stops, tmp_path, inside=False))
    os.waitpid(alone, os.WUNTRACED)
    log.page.words[SEVERAL] = 1
    log.append(0, [2])
    assert log.records() == [(0, 1), (0, 2)]
    os.kill(alone, signal.SIGKILL)
    os.waitpid(alone, 0)


def test_a_process_that_is_stopped_in_an_append_is_named(tmp_path: Path) -> None:
    log = TinyLog.make(tmp_path)
    alone = fork(partial(_stops, tmp_path, inside=True))
    os.waitpid(alone, os.WUNTRACED)
    log.page.words[SEVERAL] = 1
    other = TinyLog.open(tmp_path, busy_ms=10)
    named = rf"an append of process {alone} \(.*\), which is stopped, has taken more than 0.01 s"
    with pytest.raises(PutRefused, match=named) as caught:
        other.append(0, [2])
    assert caught.value.status is PutStatus.OS_PAGE_CACHE_BUSY
    os.kill(alone, signal.SIGKILL)
    os.waitpid(alone, 0)
    other.append(0, [3])
    assert other.records() == [(0, 1), (0, 3)]


def _stops(path: Path, *, inside: bool) -> None:
    log = TinyLog.open(path)
    log.append(0, [1])
    if inside:
        log.section.enter()
    os.kill(os.getpid(), signal.SIGSTOP)


def test_without_barriers_in_the_system_a_shared_append_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(section, "fence_all", lambda: False)
    log = TinyLog.make(tmp_path)
    log.append(0, [1])
    log.page.words[SEVERAL] = 1
    with pytest.raises(PutRefused, match=r"refuses membarrier\(2\)"):
        log.append(0, [2])


def test_many_that_are_quick_are_waited_for(tmp_path: Path) -> None:
    log = TinyLog.make(tmp_path)
    asked = 0

    def acquire(_seconds: float) -> bool:
        """In vain, while others append."""
        nonlocal asked
        asked += 1
        log.page.words[APPENDED] += 1
        return asked == 9

    log.section._wait(acquire)
    assert asked == 9


def test_a_repair_that_fails_fails_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    other = TinyLog.make(tmp_path)
    other.page.words[SEVERAL] = 1
    other.page.words[INTENT_END] = 24
    with monkeypatch.context() as patched:
        patched.setattr(tinylog._Repaired, "zero", full)
        log = TinyLog.open(tmp_path)
        with pytest.raises(Failed, match="No space"):
            log.append(0, [1])
    with pytest.raises(Failed):
        other.append(0, [1])
    assert (log.page.words[APPENDED], log.page.words[INTENT_END]) == (0, 24)


def test_processes_that_are_killed_at_random(tmp_path: Path) -> None:
    kill_at_random(tmp_path, 10, [AppendLock] * 3)


def kill_at_random(tmp_path: Path, kills: int, locks: list[MakeLock]) -> None:
    """Each writes its numbers to a file as they are acknowledged; all of these are in the log.

    :param locks: of each process
    """
    log = TinyLog.make(tmp_path)
    log.page.words[SEVERAL] = 1
    count = len(locks)
    living = {who: fork(partial(_appends, tmp_path, who, locks[who])) for who in range(count)}
    for number in range(kills):
        time.sleep(random.uniform(0, 0.02))
        who = number % count
        os.kill(living[who], signal.SIGKILL)
        os.waitpid(living[who], 0)
        name = who + count * (number + 1)
        living[who] = fork(partial(_appends, tmp_path, name, locks[who]))
    for each in living.values():
        os.kill(each, signal.SIGKILL)
        os.waitpid(each, 0)
    log.append(0, [0])
    assert not log.page.words[INTENT_END]
    assert log.page.words[INTENT_START] < log.page.words[APPENDED]
    found = log.records()
    for file in tmp_path.glob("acknowledged.*"):
        who = int(file.suffix[1:])
        mine = [number for queue, number in found if queue == who + 1]
        acknowledged = file.stat().st_size
        assert mine == list(range(len(mine)))
        assert acknowledged <= len(mine) <= acknowledged + 1


def _appends(path: Path, who: int, lock: MakeLock) -> None:
    log = TinyLog.open(path, make_lock=lock)
    with (path / f"acknowledged.{who}").open("wb", buffering=0) as told:
        for number in range(500):
            log.append(who + 1, [number])
            told.write(b".")
    time.sleep(60)
