"""The machine on which figures were measured."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

_PACKAGES = (
    *("lakelog-core", "lmdb", "rocksdict", "confluent-kafka", "numpy", "huey", "litequeue"),
    *("lmdb-queue", "persist-queue", "redis"),
)


def describe(directory: Path) -> dict[str, str]:
    """Return the properties of the machine on which figures depend."""
    return {
        "cpu": f"{_processor()}, {os.cpu_count()} cores",
        "system": platform.platform(),
        "python": platform.python_version(),
        "file system": file_system(directory),
        **{package: _version(package) for package in _PACKAGES},
    }


def file_system(directory: Path) -> str:
    """Return the type of the directory's file system."""
    mounts = [
        (len(mount.mountpoint), mount.fstype)
        for mount in psutil.disk_partitions(all=True)
        if directory.resolve().is_relative_to(mount.mountpoint)
    ]
    return max(mounts)[1] if mounts else "unknown"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
