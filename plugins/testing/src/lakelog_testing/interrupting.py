"""Exceptions of signal handlers at every point where CPython runs them, and what must hold after.

Ctrl-C, a time limit or any other handler that raises does so at certain points of the main thread:
at the entry of a Python function, at a backward jump, after a call of a callable that is not a
Python function, and inside calls that wait. There is none at the return of a Python function.

:func:`interrupted` reaches such a point by its number. It does not raise itself: shortly before the
point it makes a signal pending, without any step of the interpreter after it that would run the
handler. CPython then runs the handler at its own next point, so every place is a true one.

:func:`check_interrupted` runs an operation of a store once for each place, in child processes.
"""

from __future__ import annotations

import ctypes
import dis
import signal
import sys
import threading
from _thread import get_ident
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType, MethodDescriptorType
from typing import Any, Final

import attrs

SIGNAL: Final = signal.SIGUSR1
"""The signal whose handler raises; its handler is replaced meanwhile."""
PACKAGES: Final = ("lakelog", "lakelog_*")
"""Packages whose functions have the points: all of lakelog but these tests' own."""
_OWN: Final = Path(__file__).parent
_WAITING: Final = frozenset({"acquire", "sleep", "lockf", "flock", "poll", "select"})
"""Names of C functions that wait: a handler runs inside of them, before they are done."""
_MONITORING: Final[Any] = getattr(sys, "monitoring", None)
_TOOL: Final = 4
_BEFORE_POINTS: Final = ("PRECALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "POP_JUMP_BACKWARD")
"""Instructions of Python 3.11, by the begin of their names, that end with a point."""


class Interrupted(Exception):
    """Raised by the handler, as a time limit would be."""


@attrs.frozen
class Place:
    """An instruction at which a handler ran.

    :ivar function: the qualified name
    :ivar offset: of the instruction in the bytecode of the function, in bytes
    """

    file: str
    line: int
    function: str
    offset: int

    @classmethod
    def of(cls, code: CodeType, offset: int) -> Place:
        """The place at an offset of bytecode."""
        lines = [line for begin, end, line in code.co_lines() if begin <= offset < end]
        line = (lines and lines[0]) or code.co_firstlineno
        return cls(code.co_filename, line, code.co_qualname, offset)

    def __str__(self) -> str:
        name = self.file.rpartition("/src/")[2].rpartition("site-packages/")[2]
        return f"{name}:{self.line} ({self.function}, instruction {self.offset})"


@attrs.frozen
class Interruption:
    """What became of a call.

    :ivar place: where the handler ran; ``None`` if the call has fewer points
    :ivar was_raised: whether its exception came out of the call; else the call has returned
    """

    place: Place | None
    was_raised: bool


def points(work: Callable[[], object], packages: Sequence[str] = PACKAGES) -> list[Place]:
    """Call ``work`` and return its points in their order, each about where a handler would run.

    :param packages: names of packages or modules; a ``*`` at the end stands for any rest

    Call it in the main thread. The number of points differs a little from call to call, where
    ``work`` waits for other threads.
    """
    counter = _Counter(-1, _in_packages(packages), lambda *_: None)
    counter.seen = []
    with counter:
        work()
    return [Place.of(*each) for each in counter.seen]


def interrupted(
    work: Callable[[], object],
    at: int,
    packages: Sequence[str] = PACKAGES,
    act: Callable[[], object] | None = None,
) -> Interruption:
    """Call ``work``, and let a signal handler run at the point of number ``at``, from 0 on.

    :param packages: as of :func:`points`
    :param act: what the handler does; by default, it raises :class:`Interrupted`. What it raises
        otherwise comes out of this function.
    """
    places = list[Place]()

    def handle(_: int, frame: FrameType | None) -> None:
        if frame is None or frame.f_code.co_filename == __file__:
            return  # the work has returned
        places.append(Place.of(frame.f_code, frame.f_lasti))
        if act is None:
            raise Interrupted(str(places[0]))
        act()

    was_raised = False
    try:
        with _Counter(at, _in_packages(packages), handle):
            work()
    except Interrupted:
        was_raised = True
    return Interruption(places[0] if places else None, was_raised)


class _Pending(int):
    """A signal's number; reading :attr:`now` makes it pending.

    Reading an attribute is no point, other than a call: the handler does not run in here.
    """

    now = property(ctypes.pythonapi.PyErr_SetInterruptEx)


ctypes.pythonapi.PyErr_SetInterruptEx.argtypes = [ctypes.c_int]


def _in_packages(packages: Sequence[str]) -> Callable[[str], bool]:
    """Whether a file of source belongs to a module of these."""
    names = {each for each in packages if not each.endswith("*")}
    begins = tuple(each[:-1] for each in packages if each.endswith("*"))

    def is_one(file: str) -> bool:
        path = Path(file)
        if not path.is_absolute() or path.is_relative_to(_OWN):
            return False
        above = [path.stem, *(each.name for each in path.parents if _is_package(each))]
        return any(each in names or (begins and each.startswith(begins)) for each in above)

    return cache(is_one)


@cache
def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").exists()


class _Counter:
    """Counts the points of the main thread, and makes the signal pending at one of them.

    With ``sys.monitoring`` (from Python 3.12 on), the events of functions' entries, backward jumps
    and returns of C functions come just before the point. Python 3.11 traces instructions: a call
    is followed by its point. There, the return of a Python function is an event, too: it may have
    been called by C, so that its caller's call ends with a point. If it was not, the handler runs
    at the next point.

    :ivar seen: code and offset of each event; ``None`` if only counted
    """

    seen: list[tuple[CodeType, int]] | None = None

    def __init__(
        self,
        at: int,
        is_one: Callable[[str], bool],
        handle: Callable[[int, FrameType | None], None],
    ) -> None:
        self.left = at
        self.is_one = is_one
        self.handle = handle
        self.pending = _Pending(SIGNAL)
        self.main = threading.main_thread().ident

    def __enter__(self) -> None:
        self.before = signal.signal(SIGNAL, self.handle)
        if _MONITORING is not None:
            self._monitor()
        else:
            sys.setprofile(self._profile)
            sys.settrace(self._enter)

    def __exit__(self, *_: object) -> None:
        self._end()
        if _MONITORING is not None:
            _MONITORING.free_tool_id(_TOOL)
        signal.signal(SIGNAL, self.before)

    def _end(self) -> None:
        if _MONITORING is not None:
            _MONITORING.set_events(_TOOL, 0)
        else:
            sys.settrace(None)
            sys.setprofile(None)

    def _point(self, code: CodeType, offset: int, *, is_here: bool = False) -> None:
        """Count a point.

        :param is_here: whether the event is at the point itself: from Python 3.13 on, a function
            looks for signals and then tells of its entry; so do calls inside of which C waits
        """
        if get_ident() != self.main:
            return
        if self.seen is not None:
            self.seen.append((code, offset))
        self.left -= 1
        if self.left == -1:
            self._end()  # at another event before the point, the handler would run in here
            if is_here:
                self.handle(SIGNAL, sys._getframe(2))
            else:
                self.pending.now  # noqa: B018  # no call may follow

    def _waits(self, call: object) -> bool:
        """Whether it is a C function in which a handler may run before it is done."""
        return (
            type(call) in (BuiltinFunctionType, MethodDescriptorType) and call.__name__ in _WAITING  # type: ignore[attr-defined]  # both types have it
        )

    # Python 3.12 and later

    def _monitor(self) -> None:
        events = _MONITORING.events
        _MONITORING.use_tool_id(_TOOL, "lakelog_testing")
        for event, callback in {
            events.PY_START: self._entered,
            events.PY_RESUME: self._entered,
            events.INSTRUCTION: self._comes,
            events.CALL: self._called,
            events.C_RETURN: self._returned,
        }.items():
            _MONITORING.register_callback(_TOOL, event, callback)
        _MONITORING.restart_events()
        all_of_them = events.PY_START | events.PY_RESUME | events.INSTRUCTION | events.CALL
        _MONITORING.set_events(_TOOL, all_of_them)

    def _entered(self, code: CodeType, offset: int) -> Any:
        if not self.is_one(code.co_filename) or offset not in _points_of(code):
            return _MONITORING.DISABLE
        self._point(code, offset, is_here=True)
        return None

    def _comes(self, code: CodeType, offset: int) -> Any:
        if not self.is_one(code.co_filename) or offset not in _points_of(code):
            return _MONITORING.DISABLE
        self._point(code, offset)
        return None

    def _called(self, code: CodeType, offset: int, call: object, _: object) -> Any:
        if not self.is_one(code.co_filename):
            return _MONITORING.DISABLE
        if self._waits(call):
            self._point(code, offset, is_here=True)
        return None

    def _returned(self, code: CodeType, offset: int, *_: object) -> None:
        if self.is_one(code.co_filename):
            self._point(code, offset, is_here=offset in _keyword_calls_of(code))

    # Python 3.11

    def _enter(self, frame: FrameType, event: str, _: object) -> Any:
        if not self.is_one(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes = True
        return self._step(frame, event, _)

    def _step(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "return" or (
            event in ("call", "opcode") and frame.f_lasti in _points_of(frame.f_code)
        ):
            self._point(frame.f_code, frame.f_lasti)
        return self._step

    def _profile(self, frame: FrameType, event: str, call: object) -> None:
        if event == "c_call" and self._waits(call) and self.is_one(frame.f_code.co_filename):
            self._point(frame.f_code, frame.f_lasti, is_here=True)


@cache
def _points_of(code: CodeType) -> frozenset[int]:
    """Offsets of instructions that have a point, or end with one."""
    return frozenset(
        each.offset
        for each in dis.get_instructions(code)
        if (each.opname == "RESUME" and (each.arg or 0) & 3 < 2)  # else of an `await`
        or each.opname.startswith(_BEFORE_POINTS)
    )


@cache
def _keyword_calls_of(code: CodeType) -> frozenset[int]:
    """Offsets of calls after which Python 3.14 looks for signals only while nothing monitors it."""
    calls = () if sys.version_info < (3, 14) else dis.get_instructions(code)
    return frozenset(each.offset for each in calls if each.opname == "CALL_KW")
