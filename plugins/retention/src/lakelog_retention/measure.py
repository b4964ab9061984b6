"""How full the file system of a path is, by ``psutil.disk_usage`` and ``statvfs``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import attrs


@attrs.frozen
class Measure:
    """One file system.

    :ivar device: what tells it from others
    :ivar used_bytes: taken
    :ivar free_bytes: what others than root may still take
    :ivar free_inodes: files that others than root may still make; ``None`` without such a limit
    """

    device: int
    used_bytes: int
    free_bytes: int
    free_inodes: int | None = None

    @property
    def total_bytes(self) -> int:
        """All that others than root could use, and what is used."""
        return self.used_bytes + self.free_bytes

    @property
    def used_ratio(self) -> float:
        """From 0 to 1; what is kept for root is not counted (as in ``df`` and RocketMQ)."""
        return self.used_bytes / self.total_bytes if self.total_bytes else 1.0


Meter: TypeAlias = Callable[[Path], Measure]
"""Measures the file system that a path stands on; raises ``OSError``."""


def measure(path: Path) -> Measure:
    """Measure the file system of ``path``, or of where it would be made."""
    import psutil  # slow to import

    place = _nearest(path)
    usage, found = psutil.disk_usage(os.fspath(place)), os.statvfs(place)
    return Measure(
        device=place.stat().st_dev,
        used_bytes=usage.used,
        free_bytes=usage.free,
        free_inodes=found.f_favail if found.f_files else None,
    )


def _nearest(path: Path) -> Path:
    """``path``, or the nearest folder above it that is there."""
    path = path.absolute()
    return next(each for each in (path, *path.parents) if each.exists())
