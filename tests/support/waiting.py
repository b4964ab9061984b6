"""Waits for conditions that another thread or process brings about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

_PATIENCE_SECONDS: Final = 60
_PAUSE_SECONDS: Final = 0.005


def until(
    condition: Callable[[], T | None], missing: str = "", *, seconds: float = _PATIENCE_SECONDS
) -> T:
    """Call ``condition`` until it returns a true value; return that value.

    :param missing: the message of the failure after ``seconds``
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, missing or "the condition did not become true in time"
        time.sleep(_PAUSE_SECONDS)
    return found
