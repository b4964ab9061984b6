"""A disk that records: each write and each barrier that a file system sends to it, in order.

The kernel's FUSE mounts one file whose content is a disk image, and a loop device over that file
carries the file system under test. A process of its own (``python -m tests.faults.recorder``)
answers the kernel: it keeps the image in memory, and appends each write and each flush of the
device to a log before it answers. :class:`Images` makes images from both that a power cut could
leave: all that was written before the last flush, and any of what followed.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Final

import attrs

from tests.faults.disks import Disk, made
from tests.support import required
from tests.support.smalldisk import mounted

ROOT: Final = Path(__file__).parents[2]
FUSE: Final = Path("/dev/fuse")
SECTOR: Final = 512
UNIT_BYTES: Final = {"ext4-without-journal": 4096, "xfs": 4096}
"""What a disk must write whole for a file system, if more than a sector: a torn block of a folder
loses names that were synced, without a journal; xfs then cannot be mounted (its checksum differs).
"""
_BARRIER: Final = -1
"""In place of an offset."""
_ENTRY: Final = struct.Struct("<dqq")
"""When it was received (``time.monotonic``), offset and length in bytes; the data follows."""


class _Code(IntEnum):
    """Requests of the kernel, as ``linux/fuse.h`` numbers them."""

    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    OPEN = 14
    READ = 15
    WRITE = 16
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42


_REQUEST: Final = struct.Struct("<IIQQIIII")
_ANSWER: Final = struct.Struct("<IiQ")
_INIT: Final = struct.Struct("<IIIIHHIIHHI28x")
_BIG_WRITES, _MAX_PAGES = 1 << 5, 1 << 22
_ATTRIBUTES: Final = struct.Struct("<QIIQQQQQQIIIIIIIIII")
_OPENED: Final = struct.Struct("<QII")
_DIRECT_IO: Final = 1
"""FUSE keeps no page cache of its own: what the loop device writes arrives at once."""
_TRANSFER: Final = struct.Struct("<QQI")
_WRITE_ARGUMENTS_BYTES: Final = 40
_WRITTEN: Final = struct.Struct("<II")
_MOST_BYTES: Final = 1 << 20


class _Server:
    """Answers one request after the other, so that the log has the order of the device."""

    def __init__(self, device: int, image: mmap.mmap, log: int) -> None:
        self._device = device
        self._image = image
        self._log = log

    def serve(self) -> None:
        """Until the file is unmounted."""
        while True:
            try:
                request = os.read(self._device, _MOST_BYTES + mmap.PAGESIZE)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno in {errno.EINTR, errno.ENOENT}:  # the request was withdrawn
                    continue
                raise
            _, code, unique, *_ = _REQUEST.unpack_from(request)
            if code in {_Code.FORGET, _Code.BATCH_FORGET, _Code.INTERRUPT}:  # takes no answer
                continue
            answer = self._answer(code, request[_REQUEST.size :])
            error_code, data = (-errno.ENOSYS, b"") if answer is None else (0, answer)
            header = _ANSWER.pack(_ANSWER.size + len(data), error_code, unique)
            os.write(self._device, header + data)

    def _answer(self, code: int, request: bytes) -> bytes | None:
        """What the kernel asked for; ``None`` if it is not answered here."""
        answer: bytes | None = None
        match code:
            case _Code.INIT:
                flags, pages = _BIG_WRITES | _MAX_PAGES, _MOST_BYTES // mmap.PAGESIZE
                answer = _INIT.pack(7, 31, 0, flags, 16, 12, _MOST_BYTES, 1, pages, 0, 0)
            case _Code.GETATTR | _Code.SETATTR:
                size, mode, times = len(self._image), stat.S_IFREG | 0o600, (0,) * 6
                answer = _ATTRIBUTES.pack(
                    3600, 0, 0, 1, size, size // SECTOR, *times, mode, 1, 0, 0, 0, 4096, 0
                )
            case _Code.OPEN:
                answer = _OPENED.pack(0, _DIRECT_IO, 0)
            case _Code.READ:
                _, offset, length = _TRANSFER.unpack_from(request)
                answer = self._image[offset : offset + length]
            case _Code.WRITE:
                _, offset, length = _TRANSFER.unpack_from(request)
                data = request[_WRITE_ARGUMENTS_BYTES:]
                self._record(offset, data)
                self._image[offset : offset + length] = data
                answer = _WRITTEN.pack(length, 0)
            case _Code.FSYNC:
                self._record(_BARRIER, b"")
                answer = b""
            case _Code.RELEASE | _Code.FLUSH | _Code.DESTROY:
                answer = b""
        return answer

    def _record(self, offset: int, data: bytes) -> None:
        os.write(self._log, _ENTRY.pack(time.monotonic(), offset, len(data)) + data)


def main(base: str, place: str, log: str) -> None:
    """Mount the image ``base`` at the file ``place``; what is written there goes to ``log``."""
    device = os.open(FUSE, os.O_RDWR)
    options = f"fd={device},rootmode=100000,user_id=0,group_id=0"
    command = ["mount", "-i", "-t", "fuse", "-o", options, "recorder", place]
    subprocess.run(command, check=True, pass_fds=[device])
    print("mounted", flush=True)  # noqa: T201  # the parent waits for it
    with Path(base).open("rb") as file, Path(log).open("wb", buffering=0) as logged:
        image = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        _Server(device, image, logged.fileno()).serve()


@attrs.frozen
class _Write:
    offset: int
    data: bytes


@attrs.frozen
class Cut:
    """An image that a power cut could leave.

    :ivar seconds: when the first write came that it does not have, by ``time.monotonic``
    :ivar lost: writes since the last barrier that are not there
    :ivar torn: writes of which only some sectors are there
    """

    seconds: float
    lost: int
    torn: int


@attrs.define
class Images:
    """Makes images, each from ``base`` and the part of ``log`` up to a random write.

    What was written before the last barrier is there. Of the writes since then any subset is
    there, in any order, some of them with only some of their units.

    :ivar unit_bytes: what the disk writes whole
    """

    base: Path
    log: Path
    choose: random.Random
    unit_bytes: int = SECTOR

    def made(self, image: Path, since_seconds: float, count: int) -> Iterator[Cut]:
        """Write ``image`` anew, ``count`` times; none is cut before ``since_seconds``.

        Each ends with a write, which may be lost.
        """
        entries = list(self._entries())
        able = [
            at
            for at, (seconds, _) in enumerate(entries)
            if seconds > since_seconds and entries[at - 1][1] is not None
        ]
        cuts = sorted(self.choose.choices(able, k=count))
        durable = image.with_name("durable")
        subprocess.run(["cp", "--sparse=always", self.base, durable], check=True)
        at, pending = 0, list[_Write]()
        for cut in cuts:
            with durable.open("r+b") as file:
                while at < cut:
                    write = entries[at][1]
                    at += 1
                    if write is not None:
                        pending.append(write)
                        continue
                    for each in pending:
                        os.pwrite(file.fileno(), each.data, each.offset)
                    pending.clear()
            subprocess.run(["cp", "--sparse=always", durable, image], check=True)
            yield self._apply_some(image, pending, entries[cut][0])

    def _apply_some(self, image: Path, pending: list[_Write], seconds: float) -> Cut:
        chance = self.choose.random()
        there = [each for each in pending if self.choose.random() < chance]
        self.choose.shuffle(there)
        torn = 0
        with image.open("r+b") as file:
            for each in there:
                tears = self.choose.random() < 0.25
                torn += tears
                for start in range(0, len(each.data), self.unit_bytes if tears else 1 << 30):
                    if not tears or self.choose.random() < 0.5:
                        end = start + self.unit_bytes if tears else None
                        os.pwrite(file.fileno(), each.data[start:end], each.offset + start)
        return Cut(seconds, len(pending) - len(there), torn)

    def _entries(self) -> Iterator[tuple[float, _Write | None]]:
        """When each came, and what; ``None`` for a barrier."""
        with self.log.open("rb") as file:
            while head := file.read(_ENTRY.size):
                seconds, offset, length = _ENTRY.unpack(head)
                data = file.read(length)
                yield seconds, None if offset == _BARRIER else _Write(offset, data)


@attrs.frozen
class Recording:
    """A new file system on a disk that records.

    :ivar disk: the disk, mounted
    :ivar base: its image as it was before
    :ivar log: what was written since
    """

    kind: str
    disk: Disk
    base: Path
    log: Path

    @contextmanager
    def mounted_cuts(self, since_seconds: float, count: int, seed: int) -> Iterator[Iterator[Cut]]:
        """Images that a power cut could leave, each mounted in place of the disk in its turn."""
        disk = Disk(self.log.with_name("cut"), self.disk.place, cuts_at_once=True)
        unit_bytes = UNIT_BYTES.get(self.kind, SECTOR)
        images = Images(self.base, self.log, random.Random(seed), unit_bytes)
        with closing(self._mounted(disk, images.made(disk.image, since_seconds, count))) as cuts:
            yield cuts

    def _mounted(self, disk: Disk, cuts: Iterator[Cut]) -> Generator[Cut]:
        for cut in cuts:
            if self.kind == "ext4-without-journal":  # as each boot does
                command = ["e2fsck", "-fy", str(disk.image)]
                done = subprocess.run(command, check=False, capture_output=True)
                assert done.returncode in {0, 1}, done.stdout
            disk.mount()  # fails the test where it cannot be mounted
            try:
                yield cut
            finally:
                disk.unmount()


@contextmanager
def recording(kind: str, folder: Path) -> Iterator[Recording]:
    """Make a file system on a disk that records, and mount it."""
    if not FUSE.exists():
        required.missing(f"there is no {FUSE}: the kernel has no FUSE")
    with made(kind, folder) as disk:
        disk.unmount()
        served, log = folder / "recorded", folder / "log"
        served.touch()
        command = [
            sys.executable,
            "-m",
            "tests.faults.recorder",
            *map(str, (disk.image, served, log)),
        ]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "mounted\n"
            recorded = Disk(served, disk.place, cuts_at_once=True)
            try:
                with mounted(recorded.place, recorded.mounting):
                    yield Recording(kind, recorded, disk.image, log)
            finally:
                subprocess.run(["umount", "-l", served], check=True)
        assert process.returncode == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
