"""Runs something in a process of its own, which kills itself by SIGKILL at a point of it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any


def killed_at(work: Callable[[], None], owner: Any, name: str, times: int) -> bool:
    """Whether it was killed before the call of ``owner.name`` that comes after so many.

    The process is forked, so that ``work`` may be any function; it starts no threads of its own.
    """
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_run, args=(work, owner, name, times), daemon=True)
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL), "it failed, or hangs"
    return process.exitcode != 0


def _run(work: Callable[[], None], owner: Any, name: str, times: int) -> None:
    inner: Callable[..., Any] = getattr(owner, name)
    left = times

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return inner(*given, **named)

    setattr(owner, name, counted)
    work()
