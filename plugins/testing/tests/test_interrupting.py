"""The points of the tool are those of CPython; what an interruption leaves behind is found."""

from __future__ import annotations

import dis
import gc
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import lakelog
from lakelog import Store
from lakelog.runtime.locks import Mutex
from lakelog_testing import Interrupted, check_interrupted, interrupted, points
from lakelog_testing.interrupted_stores import Interruptions, Trial
from lakelog_testing.interrupting import Place

PIECE = """
from _thread import RLock
from functools import partial

lock = RLock()


class Holder:
    def __init__(self, number):
        self.number = number
        self.items = list(range(number))

    @property
    def size(self):
        return len(self.items)

    def __enter__(self):
        lock.acquire()
        return self

    def __exit__(self, *_):
        lock.release()

    def __eq__(self, other):
        return self.number == other.number

    def __hash__(self):
        return hash(self.number)


def inner(number):
    return number + 1


def acquired():
    try:
        return inner(lock.acquire())
    finally:
        lock.release()


def taken():
    lock.acquire()


def generated(number):
    for each in range(number):
        yield each
    yield from two()


def two():
    yield 1
    yield 2


async def outer():
    await other()


async def other():
    return max(1, 2)


def work():
    holder = Holder(3)
    with holder as it:
        number = it.size
        while number:
            number -= 1
        while True:
            number += 1
            if number > 3:
                break
            if number == 2:
                continue
    with lock:
        number = inner(number)
    acquired()
    for each in generated(2):
        number += each
    found = [inner(each) for each in range(3)]
    {holder: 1}[Holder(3)]
    partial(inner, 1)()
    arguments = (1,)
    inner(*arguments)
    max(*arguments, 2)
    sorted(found, key=lambda each: -each)
    with Holder(number=2):
        str(number)
    try:
        with holder:
            {}[1]
    except KeyError:
        bytes(3)
    coroutine = outer()
    try:
        coroutine.send(None)
    except StopIteration:
        dict(a=1)
    "a,b".split(",")
"""
POINTS = ("RESUME", "CALL", "PRECALL", "JUMP_BACKWARD", "POP_JUMP_BACKWARD")
SIGNALS = 20_000


class Alarm(Exception):
    pass


@pytest.fixture(scope="module")
def piece(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    folder = tmp_path_factory.mktemp("piece")
    (folder / "lakelog_piece.py").write_text(PIECE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield import_module("lakelog_piece")
    del sys.modules["lakelog_piece"]


def real_places(module: ModuleType) -> set[Place]:
    """Where the handler of a timer ran, many thousand times."""
    found, chance = set[Place](), random.Random(0)

    def handle(_: int, frame: object) -> None:
        code = frame.f_code  # type: ignore[attr-defined]  # a frame is not None here
        if code.co_filename == module.__file__:
            found.add(Place.of(code, frame.f_lasti))  # type: ignore[attr-defined]  # a frame is not None here
        raise Alarm

    before = signal.signal(signal.SIGALRM, handle)
    gc.disable()  # callbacks of other libraries at a collection would print the exception
    try:
        for _ in range(SIGNALS):
            with suppress(Alarm):
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(5e-6, 150e-6))
                for _round in range(1000):  # it may end: Python loses an exception in a finalizer
                    module.work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    return found


def tool_places(module: ModuleType) -> set[Place]:
    count = len(points(module.work))
    found = [interrupted(module.work, at).place for at in range(count)]
    return {each for each in found if each is not None and each.file == module.__file__}


def instructions(module: ModuleType) -> dict[tuple[str, int], str]:
    """The name of each instruction, by function and offset."""
    assert module.__file__ is not None
    codes = [compile(Path(module.__file__).read_text(), module.__file__, "exec")]
    found = dict[tuple[str, int], str]()
    while codes:
        code = codes.pop()
        codes += [each for each in code.co_consts if isinstance(each, type(code))]
        for each in dis.get_instructions(code):
            found[code.co_qualname, each.offset] = each.opname
    return found


def test_the_places_are_those_where_handlers_of_a_timer_run(piece: ModuleType) -> None:
    names = instructions(piece)

    def merged(places: set[Place]) -> set[tuple[str, int]]:
        """With Python 3.11, a call has two instructions: either may end with its point."""
        keys = {(each.function, each.offset) for each in places}
        return {(name, at + 4 if names[name, at] == "PRECALL" else at) for name, at in keys}

    real, ours = merged(real_places(piece)), merged(tool_places(piece))
    assert len(real) > 40
    assert not real - ours
    assert all(names[each].startswith(POINTS) for each in ours)


def test_a_call_has_as_many_points_each_time(piece: ModuleType) -> None:
    found = points(piece.work)
    assert found == points(piece.work)
    assert found == points(piece.work, ["lakelog_piece"])
    assert not points(piece.work, ["lakelog"])
    after = interrupted(piece.work, len(found))
    assert after.place is None
    assert not after.was_raised


def test_what_a_handler_does_is_done_at_the_point(piece: ModuleType) -> None:
    done = list[int]()
    came = interrupted(piece.work, 3, act=lambda: done.append(1))
    assert (done, came.was_raised) == ([1], False)
    assert came.place is not None
    with pytest.raises(ZeroDivisionError):
        interrupted(piece.work, 3, act=lambda: 1 / 0)


def test_an_exception_inside_of_a_wait_and_after_it(piece: ModuleType) -> None:
    """The lock is not had if a handler raises in the wait for it, and is had right after it."""
    states = list[bool]()
    for at in range(len(points(piece.taken))):
        while piece.lock._is_owned():
            piece.lock.release()
        if interrupted(piece.taken, at).was_raised:
            states.append(piece.lock._is_owned())
    assert states[:1] == [False]
    assert {False, True} == set(states[1:])


def _tried(folder: Path, work: Callable[[Trial], Callable[[], object]]) -> Interruptions:
    def opener(path: Path) -> Store:
        return lakelog.open(path, plugins=[], segment_size_bytes=16 << 10, preallocate=False)

    here = Path(__file__).stem
    return check_interrupted(opener, work, folder, packages=[here], patience_seconds=2)


def _good() -> None:
    len("")


def test_an_operation_that_leaves_nothing(tmp_path: Path) -> None:
    found = _tried(tmp_path, lambda _: _good)
    assert found.cases > 1
    assert not found.violations
    assert "0 violations" in str(found)


def test_a_lock_that_stays(tmp_path: Path) -> None:
    lock = Mutex()

    def take() -> None:
        lock.acquire()
        _good()
        lock.release()

    found = _tried(tmp_path, lambda _: take)
    assert any("locks: AssertionError" in each for each in found.violations)
    assert len(found.violations) < found.cases


def test_a_message_that_was_acknowledged_and_is_missing(tmp_path: Path) -> None:
    def forget(trial: Trial) -> Callable[[], object]:
        trial.messages(1)
        return _good

    found = _tried(tmp_path, forget)
    assert len(found.violations) == found.cases > 0
    assert all("acknowledged and missing" in each for each in found.violations)


def test_a_part_of_a_batch(tmp_path: Path) -> None:
    def one_by_one(trial: Trial) -> Callable[[], object]:
        store, messages = trial.store, trial.messages(2)

        def work() -> None:
            for each in messages:
                store.put(each)
                _good()

        return work

    found = _tried(tmp_path, one_by_one)
    assert any("a part of a batch" in each for each in found.violations)


def test_a_call_that_does_not_end(tmp_path: Path) -> None:
    failed = list[int]()

    def hang(_: Trial) -> Callable[[], object]:
        def work() -> None:
            try:
                _good()
            except Interrupted:
                failed.append(1)
                raise
            while failed:
                signal.pause()

        return work

    found = _tried(tmp_path, hang)
    assert any("the process ended with 1" in each for each in found.violations)


def test_an_operation_that_fails_by_itself(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"without an interruption.*ZeroDivisionError"):
        _tried(tmp_path, lambda _: lambda: 1 / 0)
