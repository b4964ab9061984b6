"""Kills a process before any bytecode instruction of one module: between any two of its stores."""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


def die(step: int, module: ModuleType, work: Callable[[], object]) -> bool:
    """Let a forked child do ``work``, and kill it before instruction ``step`` of ``module``.

    :returns: whether it came that far; else it has done all of its work, or an error ends the test
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child forks with one thread
        child = os.fork()
    if not child:
        try:
            sys.settrace(_Killer(step, module).enter)
            work()
        except BaseException:  # noqa: BLE001  # whatever it is, the parent must not go on in here
            sys.settrace(None)
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), f"the child ended with {code}"
    return code != 0


class _Killer:
    def __init__(self, step: int, module: ModuleType) -> None:
        self._left = step
        self._file = module.__file__

    def enter(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        if frame.f_code.co_filename != self._file:
            return None
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, _frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "opcode":
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1
        return self._step
