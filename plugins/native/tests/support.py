"""Both ways of one function: the accelerator's, and plain Python's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lakelog import accelerate
from lakelog_native.accelerator import Native

Result = TypeVar("Result")
NATIVE = Native()


def both(call: Callable[[], Result]) -> tuple[Result, Result]:
    """What ``call`` gives with the accelerator, and without."""
    before = accelerate.current()
    try:
        accelerate.use(NATIVE)
        native = call()
        accelerate.use(None)
        return native, call()
    finally:
        accelerate.use(before)
