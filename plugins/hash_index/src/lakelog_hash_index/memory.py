"""Keys that are in no file, kept in memory by a reader, which may not change the index."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray


@attrs.frozen(eq=False)
class _Run:
    """Keys sorted by hash, then in log order."""

    hashes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    times_ms: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.hashes)

    def __getitem__(self, part: Any) -> _Run:
        return _Run(self.hashes[part], self.offsets[part], self.times_ms[part])

    def sorted(self) -> _Run:
        return self[np.argsort(self.hashes, kind="stable")]

    def behind(self, older: _Run) -> _Run:
        pairs = zip(_columns(older), _columns(self), strict=True)
        return _Run(*(np.concatenate(pair) for pair in pairs)).sorted()


def _columns(run: _Run) -> tuple[NDArray[Any], ...]:
    return run.hashes, run.offsets, run.times_ms


class MemoryKeys:
    """Sorted runs, merged as they grow: each is more than twice as long as the next.

    One thread adds; any thread may read.
    """

    def __init__(self) -> None:
        self._runs: tuple[_Run, ...] = ()

    def add(
        self, hashes: NDArray[np.int32], offsets: NDArray[np.int64], times_ms: NDArray[np.int64]
    ) -> None:
        """Add keys of records behind all previous ones."""
        run, runs = _Run(hashes, offsets, times_ms).sorted(), list(self._runs)
        while runs and len(runs[-1]) <= 2 * len(run):
            run = run.behind(runs.pop())
        self._runs = (*runs, run)

    def truncate(self, end_offset: int) -> None:
        """Remove records at or behind ``end_offset``."""
        self._runs = tuple(run[run.offsets < end_offset] for run in self._runs)

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> list[int]:
        """Offsets of records with a store time in the inclusive window, newest first."""
        found: list[int] = []
        for run in self._runs:
            sides = np.searchsorted(run.hashes, [key_hash, key_hash + 1])
            some = run[slice(*sides)]
            fits = (some.times_ms >= begin_ms) & (some.times_ms <= end_ms)
            found += some.offsets[fits].tolist()
        return sorted(found, reverse=True)
