"""Stops a process by ``SIGSTOP``, and waits until it has stopped.

``SIGSTOP`` takes effect when each thread of the process is next scheduled. On a busy machine the
process may run on for a while, and handle a ``SIGTERM`` that arrives meanwhile first. Source:
``signal(7)``, ``proc(5)``.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

from lakelog_testing.threads import PATIENCE_SECONDS

_STILL: Final = "TZX"
"""States of a thread that is stopped, or has ended."""


def hold(pid: int, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Send ``SIGSTOP`` and wait until every thread has stopped; ``SIGCONT`` continues it.

    A process that has ended, but was not waited for, counts as stopped.

    Raises ``ProcessLookupError`` if the process does not exist, and ``TimeoutError``.
    """
    os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + patience_seconds
    while not _is_held(pid):
        if time.monotonic() > until:
            raise TimeoutError(f"process {pid} still runs")
        time.sleep(0.001)


def _is_held(pid: int) -> bool:
    try:
        stats = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread has just ended
        return False
    if not stats:
        raise ProcessLookupError(pid)
    return all(each.rpartition(")")[2].split()[0] in _STILL for each in stats)
