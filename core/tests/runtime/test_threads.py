"""Threads that cannot start, the lock that serves them in turns, and what a forked child finds."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from importlib import import_module
from itertools import count
from pathlib import Path
from threading import Event, Lock, Thread
from types import ModuleType, SimpleNamespace

import pytest

from lakelog.errors import ThreadNotStarted
from lakelog.lazy import cached_property, np
from lakelog.runtime.forks import register_forked
from lakelog.runtime.locks import Mutex, YieldLock
from lakelog.runtime.threads import started, submitted
from lakelog_testing.interrupting import Place, interrupted


def test_work_without_a_thread_is_refused_and_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor keeps it, and would run it with the next work."""

    def refuse(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    ran: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        with monkeypatch.context() as patched:
            patched.setattr(Thread, "start", refuse)
            with pytest.raises(ThreadNotStarted):
                submitted(pool.submit, "lakelog-test", lambda: ran.append("refused"))
        submitted(pool.submit, "lakelog-test", lambda: ran.append("later")).result(20)
    assert ran == ["later"]


@pytest.fixture
def restless() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_one_thread_at_a_time_is_inside() -> None:
    lock, inside, most, count = YieldLock(), 0, 0, 0

    def work() -> None:
        nonlocal inside, most, count
        for _ in range(500):
            with lock:
                inside += 1
                most = max(most, inside)
                before = count
                time.sleep(0)
                count = before + 1
                inside -= 1

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(work) for _ in range(4)]:
            each.result()
    assert (most, count) == (1, 2000)


def test_a_lock_that_is_held_is_not_had_in_time() -> None:
    lock = YieldLock()
    with lock, ThreadPoolExecutor(1) as other:
        assert not other.submit(lock.acquire, 0.01).result()
        assert not other.submit(lock.acquire, 0).result()
        assert lock.is_mine()
        assert not other.submit(lock.is_mine).result()
    assert not lock.is_mine()
    assert lock.acquire(0)
    lock.release()


pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
CHILD_SECONDS = 10
FORKING = """
import os
child = os.fork()
if not child:
    os._exit(0)
os.waitpid(child, 0)
"""


class Watching:
    """Wants to be told of forks, as an open store does."""

    def forked(self) -> None:
        """Nothing is to be let go of."""


@pytest.fixture
def watching() -> Watching:
    one = Watching()
    register_forked(one)
    return one


def does(work: Callable[[], object]) -> bool:
    """Whether a forked child gets ``True`` of it in time."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(CHILD_SECONDS)
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.usefixtures("watching")
def test_a_child_can_import_what_a_thread_was_importing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "import lakelog_slow_signs as s\ns.begun.set()\nimport time\ntime.sleep(0.3)\nvalue = 7\n"
    )
    (tmp_path / "lakelog_slow.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    begun = Event()
    monkeypatch.setitem(sys.modules, "lakelog_slow_signs", SimpleNamespace(begun=begun))
    importing = Thread(target=import_module, args=("lakelog_slow",))
    importing.start()
    try:
        assert begun.wait(10)
        assert does(lambda: import_module("lakelog_slow").value == 7)
    finally:
        importing.join()
        sys.modules.pop("lakelog_slow", None)


@pytest.mark.usefixtures("watching")
def test_parent_and_children_import_after_a_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From another thread, which the lock of all imports would hold up for ever."""
    monkeypatch.syspath_prepend(tmp_path)

    def can_import(name: str) -> bool:
        (tmp_path / f"{name}.py").touch()
        thread = Thread(target=import_module, args=(name,), daemon=True)
        thread.start()
        thread.join(CHILD_SECONDS / 2)
        return not thread.is_alive()

    assert does(lambda: can_import("lakelog_of_the_child"))
    assert can_import("lakelog_of_the_parent")
    assert does(lambda: does(lambda: can_import("lakelog_of_a_grandchild")))


@pytest.mark.usefixtures("watching")
def test_a_module_that_forks_while_it_is_imported_is_not_held_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lakelog_forking.py").write_text(FORKING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waited for an import of its own"))
    import_module("lakelog_forking")


class Computing:
    """Has an attribute that takes as long as the test wants."""

    def __init__(self) -> None:
        self.begun, self.may_end = Event(), Event()

    @cached_property
    def answer(self) -> object:
        self.begun.set()
        self.may_end.wait(CHILD_SECONDS)
        return object()


def test_a_child_computes_while_a_thread_of_its_parent_does() -> None:
    one, other = Computing(), Computing()
    other.may_end.set()
    thread = Thread(target=lambda: one.answer)
    thread.start()
    try:
        assert one.begun.wait(10)
        assert does(lambda: other.answer)
        assert other.answer is other.answer
    finally:
        one.may_end.set()
        thread.join()


def test_threads_that_compute_at_once_get_the_same() -> None:
    one = Computing()
    with ThreadPoolExecutor(4) as pool:
        got = [pool.submit(lambda: one.answer) for _ in range(4)]
        assert one.begun.wait(10)
        one.may_end.set()
    assert [each.result() is one.answer for each in got] == [True] * 4
    assert isinstance(Computing.answer, cached_property)


def kept_at(lock: AbstractContextManager[object], is_kept: Callable[[], bool]) -> list[Place]:
    """The points of an empty block at which a signal handler's exception leaves ``lock`` acquired.

    Points behind the block are found too: the handler runs wherever CPython would run it.
    """

    def work() -> None:
        with lock:
            pass

    kept = list[Place]()
    for at in count():
        place = interrupted(work, at, packages=("lakelog", "test_threads")).place
        if place is None:
            assert at >= 2
            return kept
        if is_kept():
            kept.append(place)
            lock.__exit__(None, None, None)
    raise AssertionError


def test_a_mutex_is_released_wherever_a_signal_handler_raises() -> None:
    mutex = Mutex()
    assert kept_at(mutex, mutex._is_owned) == []  # type: ignore[attr-defined]  # RLock has it for Condition


@pytest.mark.skipif(sys.version_info < (3, 14), reason="no signal handler ran there")
def test_the_point_at_which_a_lock_of_the_standard_library_is_kept_is_tried() -> None:
    lock = Lock()
    assert kept_at(lock, lock.locked)


def test_a_handler_that_needs_the_mutex_it_interrupts_does_not_wait_for_ever() -> None:
    mutex, entered = Mutex(), list[str]()

    def enter(*_: object) -> None:
        with mutex:
            entered.append("handler")

    before = signal.signal(signal.SIGUSR1, enter)
    try:
        with mutex:
            signal.raise_signal(signal.SIGUSR1)
            entered.append("block")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert entered == ["handler", "block"]
    with ThreadPoolExecutor(1) as other:  # the handler has not released it for good, nor kept it
        assert other.submit(mutex.acquire, blocking=False).result(20)


# The error that ends the thread is the subject: pytest warns of it, by one name or the other.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_thread_that_ends_before_its_first_line_is_refused() -> None:
    """As one that has no memory for its first frame; ``Thread.start`` would wait for ever."""

    class Ends(Thread):
        def _bootstrap(self) -> None:
            raise MemoryError

    with pytest.raises(ThreadNotStarted):
        started(Ends(daemon=True))


def test_numpy_is_imported_without_a_thread_that_ends_before_its_first_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first access would wait for that thread for ever."""
    not_loaded = ModuleType("numpy")
    vars(not_loaded)["name"] = "found"
    monkeypatch.setitem(sys.modules, "numpy", not_loaded)
    monkeypatch.setattr("lakelog.lazy.start_new_thread", lambda *_: None)
    found = list[str]()
    on_first_use = type(np)("numpy")
    reader = Thread(target=lambda: found.append(on_first_use.name), daemon=True)
    reader.start()
    reader.join(20)
    assert found == ["found"]
