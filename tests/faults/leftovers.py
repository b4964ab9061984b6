"""What a process still holds of a store that it has closed, or could not open."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PATIENCE_SECONDS: Final = 10.0
"""A thread that only logs may still be ending; nothing else takes any time."""
_PAUSE_SECONDS: Final = 0.01


def held(path: str) -> set[str]:
    """Threads, descriptors, and maps of files below ``path``; locks are held by descriptors."""
    return {*_threads(), *_descriptors(), *_maps(path)}


def left_of(path: str, before: set[str]) -> list[str]:
    """What is held now and was not ``before``, once nothing changes any more."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        gc.collect()
        left = held(path) - before
        if not left or time.monotonic() > until:
            return sorted(left)
        time.sleep(_PAUSE_SECONDS)


def _threads() -> Iterator[str]:
    for task in Path("/proc/self/task").iterdir():
        yield f"thread {task.name}"


def _descriptors() -> Iterator[str]:
    with os.scandir("/proc/self/fd") as found:
        for each in found:
            try:
                target = os.readlink(each.path)
            except FileNotFoundError:  # the one that lists them
                continue
            if not target.startswith("/proc/"):
                yield f"descriptor {each.name} of {target}"


def _maps(path: str) -> Iterator[str]:
    with Path("/proc/self/maps").open() as lines:
        for line in lines:
            if path in line:
                yield f"map of {line[line.index(path) :].strip()}"
