"""Disk usage of a store, with a bar for each disk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from lakelog_retention.maintenance.disks import watched

BAR_WIDTH: Final = 30


def disks(path: Path, commitlog: Path) -> list[dict[str, Any]]:
    """The file systems of the store's parts, without duplicates; the log's first.

    Ratios refer to the space usable by users other than root, as in ``df``.
    """
    found: dict[int, dict[str, Any]] = {}
    for each in watched(path, commitlog):
        if each.is_dir():
            found.setdefault(each.stat().st_dev, _usage(each))
    return list(found.values())


def _usage(path: Path) -> dict[str, Any]:
    seen = os.statvfs(path)
    used = (seen.f_blocks - seen.f_bfree) * seen.f_frsize
    free = seen.f_bavail * seen.f_frsize
    return {
        "path": str(path),
        "used_bytes": used,
        "free_bytes": free,
        "used_ratio": round(used / (used + free), 4) if used + free else 0.0,
        "free_inodes": seen.f_favail if seen.f_files else None,
    }


def bars(found: Iterable[dict[str, Any]]) -> Iterator[str]:
    """One line for each disk.

    >>> usage = {"path": "/data", "used_ratio": 0.5, "free_bytes": 7}
    >>> list(bars([usage]))
    ['disk [###############...............]  50.0 %, 7 bytes free: /data']
    """
    for each in found:
        full = round(each["used_ratio"] * BAR_WIDTH)
        bar = "#" * full + "." * (BAR_WIDTH - full)
        share = f"{each['used_ratio']:6.1%}".replace("%", " %")
        yield f"disk [{bar}] {share}, {each['free_bytes']} bytes free: {each['path']}"
