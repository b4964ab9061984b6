"""Makes calls fail while a store puts: syncs with EIO, by strace, and writes on a full disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.bench.comparison.breaking import cut, disk_of
from tests.bench.comparison.running import Putting, read
from tests.bench.comparison.stores import Store
from tests.bench.comparison.tally import Tally
from tests.bench.model import CannotRunError, NothingPutError

_SYNCS: Final = "fsync,fdatasync,msync"
_BEFORE: Final = 50
_AFTER: Final = 50
_ENOUGH_ACKS: Final = 2000
_SECONDS: Final = 30.0
_TRACER: Final = "TracerPid:\t0"


def sync_once(store: Store, scratch: Path) -> dict[str, Any]:
    """Let each thread's next sync fail, and all later ones succeed; then kill the process.

    Linux may drop the pages of a failed sync, and let the next one succeed without them.
    """
    scratch.mkdir()
    directory = scratch / "store"
    with (
        Putting.started(store, directory) as putting,
        failing(putting, "1", scratch / "trace") as trace,
    ):
        putting.wait(lambda: was_injected(trace), _SECONDS)
        putting.wait_outcomes(_AFTER, _SECONDS)
        death = putting.death()
        putting.kill()
    return _result(store, directory, putting, putting.acknowledged(), death)


def syncs_then_cut(store: Store, scratch: Path) -> dict[str, Any]:
    """Let all syncs fail from some moment on; then simulate a power cut."""
    with disk_of("ext4", scratch) as disk:
        directory = disk.place / "store"
        with (
            Putting.started(store, directory) as putting,
            failing(putting, "1+", scratch / "trace") as trace,
        ):
            putting.wait(lambda: was_injected(trace), _SECONDS)
            putting.wait_outcomes(_AFTER, _SECONDS)
            death = putting.death()
            _, must = cut(disk, putting)
        return _result(store, directory, putting, must, death)


@contextmanager
def failing(putting: Putting, when: str, trace: Path) -> Iterator[Path]:
    """Let syncs of a process fail after its first puts; yields the file of strace's output."""
    if shutil.which("strace") is None:
        raise CannotRunError("there is no 'strace': apt-get install strace")
    if not putting.wait_outcomes(_BEFORE):
        raise NothingPutError(f"nothing was put: {putting.death()}")
    inject = f"inject={_SYNCS}:error=EIO:when={when}"
    command = ["strace", "-f", "-qq", "-o", str(trace), "-p", str(putting.process.pid)]
    with subprocess.Popen(
        [*command, "-e", f"trace={_SYNCS}", "-e", inject], stderr=subprocess.PIPE, text=True
    ) as strace:
        if not putting.wait(lambda: _is_traced(putting) or strace.poll() is not None):
            raise CannotRunError(f"strace did not begin: {putting.death()}")
        if strace.poll() is not None:
            assert strace.stderr is not None
            raise CannotRunError(f"strace: {strace.stderr.read().strip()}")
        try:
            yield trace
        finally:
            putting.kill()  # by which strace ends, too
            strace.wait()


def _is_traced(putting: Putting) -> bool:
    tasks = Path(f"/proc/{putting.process.pid}/task")
    try:
        return all(_TRACER not in (each / "status").read_text() for each in tasks.iterdir())
    except OSError:
        return False  # a thread has ended; or the process, which is noticed elsewhere


def was_injected(trace: Path) -> bool:
    """Whether strace has made a call fail."""
    return trace.exists() and "(INJECTED)" in trace.read_text(errors="replace")


def full_disk(store: Store, scratch: Path) -> dict[str, Any]:
    """Fill the file system from this process, free the space, then kill the process that puts."""
    with disk_of("ext4", scratch) as disk:
        directory, other = disk.place / "store", disk.place / "other"
        with Putting.started(store, directory) as putting:
            if not putting.wait_outcomes(_BEFORE):
                raise NothingPutError(f"nothing was put: {putting.death()}")
            fill(other)
            most = len(putting.acks) + 100 * _ENOUGH_ACKS
            putting.wait(
                lambda: len(putting.refusals) >= _AFTER or len(putting.acks) > most, 2 * _SECONDS
            )
            death = putting.death()
            other.unlink()
            freed_ns = time.monotonic_ns()
            putting.wait_outcomes(_AFTER, _SECONDS)
            putting.kill()
        result = _result(store, directory, putting, putting.acknowledged(), death)
    goes_on = sum(at > freed_ns for _, at in putting.acks)
    return {**result, "acknowledged_after_space": goes_on}


def fill(file: Path) -> None:
    """Fill a file system with ``file``."""
    at, piece = 0, 1 << 20
    fd = os.open(file, os.O_RDWR | os.O_CREAT)
    try:
        while piece >= 512:
            try:
                os.posix_fallocate(fd, at, piece)
                at += piece
            except OSError:
                piece //= 2
    finally:
        os.close(fd)


def _result(
    store: Store, directory: Path, putting: Putting, must: set[int], death: str | None
) -> dict[str, Any]:
    """Return the store's messages, and the result of reading it."""
    tally = Tally()
    tally.add(must, len(must), read(store, directory))
    refusals = putting.refusals
    since_ns = refusals[0][1] if refusals else None
    after = sum(at > since_ns for _, at in putting.acks) if since_ns is not None else None
    return {
        **tally.record(),
        "refused": len(refusals),
        "refused_with": refusals[0][2][:200] if refusals else None,
        "acknowledged_after_refusal": after,
        "logged": putting.logged,
        "death": death,
    }
