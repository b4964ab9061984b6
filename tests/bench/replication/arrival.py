"""Detects bytes in the log of a slave of either kind, by reading its segment files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from tests.bench.model import CannotRunError

_TIMEOUT_SECONDS: Final = 60.0
_LENGTH_BYTES: Final = 4


class SlaveLog:
    """The log in a folder to which another process appends.

    A record is present once its first four bytes, its length, are not zero.
    """

    def __init__(self, store: Path, segment_bytes: int, is_alive: Callable[[], bool]) -> None:
        self._folder = store / "commitlog"
        self._segment_bytes = segment_bytes
        self._is_alive = is_alive
        self._files: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._files.values():
            os.close(each)

    def has(self, record: int) -> bool:
        """Whether the record that starts at ``record`` is present."""
        at = record % self._segment_bytes
        start = record - at
        if start not in self._files:
            with suppress(FileNotFoundError):
                self._files[start] = os.open(self._folder / f"{start:020d}", os.O_RDONLY)
        if start not in self._files:
            return False
        return any(os.pread(self._files[start], _LENGTH_BYTES, at))

    def wait(self, record: int, pause_s: float) -> float:
        """Wait until the record is present; return the time by ``time.perf_counter``."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while not self.has(record):
            if time.monotonic() > deadline or not self._is_alive():
                raise CannotRunError(f"the record at {record} did not come to the slave")
            time.sleep(pause_s)
        return time.perf_counter()
