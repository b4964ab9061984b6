"""The append lock by compiled code and by plain Python: each excludes and outlives the other."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from core.tests.processes.test_append_section import kill_at_random
from core.tests.processes.test_group_sync import fork
from core.tests.processes.tinylog import MakeLock, TinyLog
from lakelog.files.filesystem import File
from lakelog.processes import shared_page as sharedpage
from lakelog.processes.append_section import AppendLock
from lakelog.processes.shared_page import APPEND_HOLDER, APPEND_PLAIN, SEVERAL, SharedPage
from lakelog_native import _native


def native(file: File, at: int, page: SharedPage) -> Any:
    return _native.AppendLock(file.fileno(), at, page.memory, sharedpage)


WAYS = pytest.mark.parametrize(
    ("one", "other"),
    [(native, native), (native, AppendLock), (AppendLock, native)],
    ids=["native", "native-plain", "plain-native"],
)


def opened(path: Path, lock: MakeLock) -> tuple[TinyLog, AppendLock]:
    log = TinyLog.open(path, make_lock=lock)
    return log, log.section._lock


@WAYS
def test_a_lock_that_is_held_is_not_had_in_time(
    tmp_path: Path, one: MakeLock, other: MakeLock
) -> None:
    log = TinyLog.make(tmp_path)
    (_, holder), (_, waiter) = opened(tmp_path, one), opened(tmp_path, other)
    assert not holder.take()
    assert waiter.take()
    assert not waiter.acquire(0.01)
    waiter.release()  # without holding it
    assert not waiter.acquire(0)
    holder.release()
    holder.release()
    assert waiter.acquire(60)
    assert holder.take()
    holder.release()
    assert not holder.acquire(0)
    waiter.release()
    assert not log.page.words[APPEND_HOLDER]
    assert not log.page.words[APPEND_PLAIN]
    assert holder.acquire(60)


@WAYS
def test_a_holder_that_is_killed_holds_nobody_up(
    tmp_path: Path, one: MakeLock, other: MakeLock
) -> None:
    log = TinyLog.make(tmp_path)
    log.page.words[SEVERAL] = 1
    child = fork(partial(_dies_inside, tmp_path, one))
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert log.page.words[APPEND_HOLDER] or log.page.words[APPEND_PLAIN]
    opened(tmp_path, other)[0].append(0, [1])
    opened(tmp_path, one)[0].append(0, [2])
    assert log.records() == [(0, 1), (0, 2)]


@WAYS
def test_a_dead_holder_is_no_reason_to_give_up(
    tmp_path: Path, one: MakeLock, other: MakeLock
) -> None:
    """The last close does not wait; it repairs what a killed process has left."""
    log = TinyLog.make(tmp_path)
    log.page.words[SEVERAL] = 1
    _, waiter = opened(tmp_path, other)
    assert os.waitpid(fork(partial(_dies_inside, tmp_path, one)), 0)[1] == signal.SIGKILL
    if waiter.take():
        assert waiter.acquire(0)
    waiter.release()
    assert not log.page.words[APPEND_HOLDER]


def _dies_inside(path: Path, lock: MakeLock) -> None:
    opened(path, lock)[0].section.enter()
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("kills", [24, *[pytest.param(75, marks=pytest.mark.slow)] * 4])
def test_processes_of_both_ways_that_are_killed_at_random(tmp_path: Path, kills: int) -> None:
    """The number is limited by the log, into which all records must fit."""
    kill_at_random(tmp_path, kills, [native, AppendLock, native, AppendLock])


def test_processes_forked_from_one_have_different_numbers(tmp_path: Path) -> None:
    """Each number stands for a life, and a lock tries only some of them."""
    TinyLog.make(tmp_path)
    opened(tmp_path, native)  # before the fork, as by a server that forks its workers
    drawn, draw = os.pipe()
    end, ended = os.pipe()

    def live() -> None:
        os.close(ended)
        log, lock = opened(tmp_path, native)
        assert lock.acquire(60)
        os.write(draw, b"%d " % log.page.words[APPEND_HOLDER])
        os.close(draw)
        lock.release()
        os.read(end, 1)  # until the test has closed the other end

    children = [fork(live) for _ in range(12)]
    os.close(draw)
    with os.fdopen(drawn) as file:
        numbers = file.read().split()
    os.close(ended)
    os.close(end)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)
    assert len(set(numbers)) == len(children)
