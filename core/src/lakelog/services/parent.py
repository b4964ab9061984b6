"""Ties a process to the one that started it, beside the socket that they share."""

from __future__ import annotations

import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
"""Of prctl(2). The signal comes when the *thread* ends that started the process."""


def die_with(owner: int) -> None:
    """Be killed when process ``owner`` dies, our parent; raises ``SystemExit`` if it has."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != owner:
        raise SystemExit(1)
