"""File systems that are mounted for one test.

Without root, or if the machine permits no mounts, such tests are skipped. A missing program
that could be installed fails them in CI.
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
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)
