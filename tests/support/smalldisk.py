"""File systems that are mounted for one test.

Without root such tests are skipped. If the machine permits no mounts, or a program is missing, they
are skipped, and fail in CI. Any other failure of a mount fails them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support import required

_ENGLISH: Final = {**os.environ, "LC_ALL": "C"}
_IMPOSSIBLE: Final = (
    *("permission denied", "not permitted", "must be superuser"),
    *("unknown filesystem type", "failed to setup loop device"),
)
"""What ``mount`` prints where this user, or this kernel, cannot mount such a file system."""
PACKAGES: Final = {"mkfs.ext4": "e2fsprogs", "mkfs.xfs": "xfsprogs", "filefrag": "e2fsprogs"}


@contextmanager
def tmpfs(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a small file system in memory; yields its folder."""
    need("mount")
    place = folder / "tmpfs"
    place.mkdir()
    options = f"size={size_bytes}"
    with mounted(place, ("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place))):
        yield place


def need(*programs: str) -> None:
    """Skip the test without root; skip it, or fail it in CI, without one of these programs."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    for program in programs:
        if shutil.which(program) is None:
            package = PACKAGES.get(program, program)
            required.missing(f"there is no {program!r}: apt-get install {package}")


@contextmanager
def mounted(place: Path, command: Sequence[str]) -> Iterator[None]:
    """Mount a file system at ``place`` by ``command``; unmount it at the end of the block."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=_ENGLISH)
    if done.returncode:
        if any(each in done.stderr for each in _IMPOSSIBLE):
            required.missing(f"this file system cannot be mounted here: {done.stderr}")
        pytest.fail(f"{' '.join(command)}: {done.stderr}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)
