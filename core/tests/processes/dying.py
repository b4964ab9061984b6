"""Ends a process before any instruction of one module: between any two of its stores."""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any, TypeAlias

import attrs

Modules: TypeAlias = ModuleType | tuple[ModuleType, ...]


def _files(modules: Modules) -> frozenset[str | None]:
    several = modules if isinstance(modules, tuple) else (modules,)
    return frozenset(each.__file__ for each in several)


def die(step: int, modules: Modules, work: Callable[[], object]) -> bool:
    """Let a forked child do ``work``, and kill it before instruction ``step`` of ``modules``.

    :returns: whether it came that far; else it has done all of its work, or an error ends the test
    """

    def traced() -> None:
        sys.settrace(_Tracer(step, _files(modules), _kill).enter)
        work()

    child = fork(traced)
    status = os.waitpid(child, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), f"the child ended with {code}"
    return code != 0


def fork(work: Callable[[], object]) -> int:
    """Let a child do ``work`` and end; its number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child forks with one thread
        child = os.fork()
    if not child:
        try:
            work()
        except BaseException:  # noqa: BLE001  # whatever it is, the parent must not go on in here
            sys.settrace(None)
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@attrs.define
class _Tracer:
    """Calls ``ends`` before the instruction that so many others come before."""

    left: int
    files: frozenset[str | None]
    ends: Callable[[], object]

    def enter(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        if frame.f_code.co_filename not in self.files:
            return None
        frame.f_trace, frame.f_trace_opcodes = self._step, True
        sys.settrace(None)  # from Python 3.12 on, a frame's wish counts from the next call of this
        sys.settrace(self.enter)
        return self._step

    def _step(self, _frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "opcode":
            self.left -= 1
            if self.left == -1:
                self.ends()
        return self._step
