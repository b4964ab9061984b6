"""The power goes while a file system is in use: what a sync covered is there afterwards.

A loop file system is shut down under a living owner, without writing back what is in the page
cache, then mounted again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.faults.checking import check_recovered
from tests.faults.conftest import Workers

pytestmark = pytest.mark.root
MIB: Final = 1 << 20
SHUTDOWN: Final = 0x8004587D
"""``EXT4_IOC_SHUTDOWN``, which is xfs's ``XFS_IOC_GOINGDOWN`` too."""
NO_LOG_FLUSH: Final = (2).to_bytes(4, "little")
FILE_SYSTEMS: Final = {
    "ext4": (64, ["mkfs.ext4", "-q", "-F"]),
    "ext4-without-journal": (64, ["mkfs.ext4", "-q", "-F", "-O", "^has_journal"]),
    "xfs": (320, ["mkfs.xfs", "-q", "-f"]),
}
DURABLE: Final = ("inline", "group-commit")


class Disk:
    """A file system in a file."""

    def __init__(self, image: Path, place: Path) -> None:
        self.image = image
        self.place = place

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", self.image, self.place], check=True)

    def cut(self) -> None:
        """Shut it down as a power cut would: nothing more reaches the image."""
        folder = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(folder, SHUTDOWN, NO_LOG_FLUSH)
        finally:
            os.close(folder)

    def unmount(self) -> None:
        subprocess.run(["umount", self.place], check=False, capture_output=True)


@pytest.fixture(params=sorted(FILE_SYSTEMS))
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """A small disk of its own; tests skip where it cannot be made."""
    size, command = FILE_SYSTEMS[request.param]
    for program in (command[0], "mount"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no program {program!r}")
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    made = Disk(tmp_path / "image", tmp_path / "disk")
    made.place.mkdir()
    with made.image.open("wb") as file:
        file.truncate(size * MIB)
    subprocess.run([*command, str(made.image)], check=True, capture_output=True)
    try:
        made.mount()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"mounting is not permitted here: {error}")
    yield made
    made.unmount()


def _cut_soon(disk: Disk, path: Path) -> None:
    """Cut the power a moment after the store was opened."""
    until = time.monotonic() + 10
    while not (path / "abort").exists() and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.3)
    disk.cut()


@pytest.mark.parametrize("flush", DURABLE)
@pytest.mark.parametrize("writer", ["file", "mmap", "staged", "direct"])
def test_what_was_acknowledged_is_there_after_a_power_cut(
    disk: Disk, workers: Workers, writer: str, flush: str
) -> None:
    path, settings = disk.place / "store", {"writer": writer, "flush": flush}
    cutter = threading.Thread(target=_cut_soon, args=(disk, path))
    cutter.start()
    outcome = workers.run(
        path, settings, workload="until-killed", kill_after_seconds=2, tolerates_break=True
    )
    cutter.join()
    time.sleep(0.05)  # until the killed process has let go of its files
    disk.unmount()
    disk.mount()
    assert outcome.acks
    check_recovered(path, settings, outcome.acks)
