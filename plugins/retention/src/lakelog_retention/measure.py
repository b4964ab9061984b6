"""Measures the usage of a path's file system, with ``psutil.disk_usage`` and ``statvfs``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import attrs


@attrs.frozen
class Measure:
    """The usage of one file system.

    :ivar device: its device number
    :ivar used_bytes: used space
    :ivar free_bytes: space available to users other than root
    :ivar free_inodes: inodes available to users other than root; ``None`` if unlimited
    """

    device: int
    used_bytes: int
    free_bytes: int
    free_inodes: int | None = None

    @property
    def total_bytes(self) -> int:
        """Used space plus the space available to users other than root."""
        return self.used_bytes + self.free_bytes

    @property
    def used_ratio(self) -> float:
        """From 0 to 1, without the space reserved for root (as in ``df`` and RocketMQ)."""
        return self.used_bytes / self.total_bytes if self.total_bytes else 1.0


Meter: TypeAlias = Callable[[Path], Measure]
"""Measures the file system of a path; raises ``OSError``."""


def measure(path: Path) -> Measure:
    """Measure the file system of ``path``, which need not exist yet."""
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
    """``path``, or its nearest existing parent."""
    path = path.absolute()
    return next(each for each in (path, *path.parents) if each.exists())
