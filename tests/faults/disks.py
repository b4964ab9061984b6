"""Small file systems for tests that break them; they need root."""

from __future__ import annotations

import fcntl
import gc
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.support.smalldisk import mounted, need, tmpfs

MIB: Final = 1 << 20
SHUTDOWN: Final = 0x8004587D
"""``EXT4_IOC_SHUTDOWN``, which is xfs's ``XFS_IOC_GOINGDOWN`` too."""
NO_LOG_FLUSH: Final = (2).to_bytes(4, "little")
FILE_SYSTEMS: Final = {
    "ext4": (128, ("mkfs.ext4", "-q", "-F")),
    "ext4-of-pages": (128, ("mkfs.ext4", "-q", "-F", "-b", "4096")),
    "ext4-without-journal": (128, ("mkfs.ext4", "-q", "-F", "-O", "^has_journal")),
    "xfs": (320, ("mkfs.xfs", "-q", "-f")),
}
_UNMOUNT_SECONDS: Final = 60


class Disk:
    """A file system in a file.

    :ivar cuts_at_once: false if a sync that runs during :meth:`cut` may succeed and still lose its
        data, which no power cut does. ``fdatasync`` of ext4 does so in a loop without lakelog
    """

    def __init__(self, image: Path, place: Path, *, cuts_at_once: bool) -> None:
        self.image = image
        self.place = place
        self.cuts_at_once = cuts_at_once

    @property
    def mounting(self) -> tuple[str, ...]:
        """The command that mounts it."""
        return ("mount", "-o", "loop", str(self.image), str(self.place))

    def mount(self) -> None:
        subprocess.run(self.mounting, check=True)

    def cut(self) -> None:
        """Shut it down as a power cut would: nothing more reaches the image."""
        folder = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(folder, SHUTDOWN, NO_LOG_FLUSH)
        finally:
            os.close(folder)

    def unmount(self) -> None:
        """Let it go, once those who died have let go of their files."""
        gc.collect()  # maps of stores that were closed
        until = time.monotonic() + _UNMOUNT_SECONDS
        while subprocess.run(["umount", self.place], check=False, capture_output=True).returncode:
            assert time.monotonic() < until, f"{self.place} stays busy"
            time.sleep(0.02)
        # A mount namespace that another process made in between keeps its own mount, and so the
        # file system that was shut down: the next mount would be of that one.
        while self._is_attached():
            assert time.monotonic() < until, f"another mount namespace has {self.image}"
            time.sleep(0.02)

    def _is_attached(self) -> bool:
        for device in Path("/sys/block").glob("loop*/loop/backing_file"):
            with suppress(OSError):  # it goes at this moment
                if device.read_text().rstrip("\n") == str(self.image):
                    return True
        return False


@contextmanager
def made(kind: str, folder: Path) -> Iterator[Disk]:
    """A mounted file system of a kind, below ``folder``; skips where there can be none."""
    size, command = FILE_SYSTEMS[kind]
    need(command[0], "mount")
    disk = Disk(folder / "image", folder / "disk", cuts_at_once=kind == "xfs")
    disk.place.mkdir()
    with disk.image.open("wb") as file:
        file.truncate(size * MIB)
    subprocess.run([*command, str(disk.image)], check=True, capture_output=True)
    with mounted(disk.place, disk.mounting):
        yield disk


@contextmanager
def small(kind: str, folder: Path) -> Iterator[Path]:
    """The folder of such a file system, or of one in memory."""
    if kind == "tmpfs":
        with tmpfs(folder, 48 * MIB) as place:
            yield place
    else:
        with made(kind, folder) as disk:
            yield disk.place


def eat(disk: Path, room_bytes: int) -> Path:
    """Fill a disk except for ``room_bytes``; return the file that takes the rest."""
    eaten, piece, at = disk / "eaten", MIB, 0
    with eaten.open("wb") as file:
        while piece >= 4096:
            try:
                os.posix_fallocate(file.fileno(), at, piece)
                at += piece
            except OSError:
                piece //= 2
        file.truncate(at - room_bytes)
    return eaten
