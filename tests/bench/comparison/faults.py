"""The faults: kills, power cuts, failing syncs, full disks, and damage after a clean stop."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.bench.comparison.running import Found, Putting, Tally, read
from tests.bench.comparison.stores import Store
from tests.bench.model import CannotRunError, NothingPutError
from tests.faults.disks import Disk, made

_LONGEST_SECONDS: Final = 0.5
_LONGEST_BEFORE_CUT_SECONDS: Final = 3.0
"""Longer than the sync interval of the modes that do not wait for each sync."""
_ROUNDS_OF_A_STORE: Final = 5
_PAUSE_US: Final = 200
"""Pause between puts on a small disk, so that modes without a sync per put do not fill it."""
_FILE_SYSTEMS: Final = ("ext4", "xfs")
_SYNCS: Final = "fsync,fdatasync,msync"
_BEFORE: Final = 50
_AFTER: Final = 50
_ENOUGH_ACKS: Final = 2000
_SECONDS: Final = 30.0
_TRACER: Final = "TracerPid:\t0"
MESSAGES: Final = 2000
_PAGE_BYTES: Final = 4096


# --- kills and power cuts at random moments, round after round ---------------------------------


def kills(store: Store, scratch: Path, rounds: int, seed: int = 1) -> dict[str, Any]:
    """Kill the process while it puts; the same store continues, a new one every five rounds."""
    choose, tally = random.Random(seed), Tally()
    must, first = set[int](), 0
    for at in range(rounds):
        directory = scratch / str(at // _ROUNDS_OF_A_STORE)
        if at % _ROUNDS_OF_A_STORE == 0:
            must, first = set(), 0
        with Putting.started(store, directory, first) as putting:
            putting.begin()
            time.sleep(choose.uniform(0, _LONGEST_SECONDS))
            putting.kill()
        must |= putting.acknowledged()
        found = read(store, directory)
        tally.add(must, len(putting.acks), found)
        tally.remark(*(why for *_, why in putting.refusals))
        must, first = set(found.numbers()), putting.next_number
    return tally.record()


def cuts(store: Store, scratch: Path, rounds: int, seed: int = 1) -> dict[str, Any]:
    """Shut down the file system while the process puts; unsynced bytes are lost."""
    choose, tally = random.Random(seed), Tally()
    for at in range(rounds):
        with disk_of(_FILE_SYSTEMS[at % len(_FILE_SYSTEMS)], scratch / str(at)) as disk:
            directory = disk.place / "store"
            with Putting.started(store, directory, pause_us=_PAUSE_US) as putting:
                putting.begin()
                time.sleep(choose.uniform(0.05, _LONGEST_BEFORE_CUT_SECONDS))
                begun_ns, must = cut(disk, putting)
            missing = tally.add(must, len(must), read(store, directory))
            ages = [(begun_ns - at) / 1e6 for number, at in putting.acks if number in missing]
            tally.oldest_lost_ms = max(tally.oldest_lost_ms, *ages, 0)
    return tally.record()


def cut(disk: Disk, putting: Putting) -> tuple[int, set[int]]:
    """Shut down and remount the file system; return the time in ns, and the puts acknowledged."""
    begun_ns = time.monotonic_ns()
    disk.cut()
    putting.kill()
    disk.unmount()
    disk.mount()
    return begun_ns, putting.acknowledged(before_ns=begun_ns)


@contextmanager
def disk_of(kind: str, folder: Path) -> Iterator[Disk]:
    """Mount a small file system; raises CannotRunError without root or permission to mount."""
    folder.mkdir(parents=True)
    try:
        with made(kind, folder) as disk:
            yield disk
    except pytest.skip.Exception as reason:
        raise CannotRunError(str(reason)) from None


# --- failing calls: syncs with EIO, by strace, and writes on a full disk -----------------------


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
    putting.begin(_BEFORE)
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
            putting.begin(_BEFORE)
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


# --- damaged files -----------------------------------------------------------------------------


def damage(store: Store, scratch: Path, flips: int, seed: int = 1) -> dict[str, Any]:
    """Flip a byte at random places, zero the last page, cut off the second half; each in a copy."""
    whole = scratch / "whole"
    with Putting.started(store, whole, count=MESSAGES) as putting:
        putting.wait(lambda: putting.has_ended)
        if putting.process.wait() or len(putting.acks) != MESSAGES:
            raise NothingPutError(f"{len(putting.acks)} messages were put: {putting.death()}")
    file, used = store.file_to_damage(whole)
    choose = random.Random(seed)
    last_page = (used - 1) // _PAGE_BYTES * _PAGE_BYTES

    def trial(spoil: Callable[[Path], None]) -> Found:
        copy = scratch / "copy"
        subprocess.run(["cp", "-a", "--sparse=always", whole, copy], check=True)
        spoil(copy / file.relative_to(whole))
        found = read(store, copy)
        subprocess.run(["rm", "-r", copy], check=True)
        return found

    return {
        "file": file.name,
        "untouched": _summary([trial(Path.touch)]),
        "flipped": _summary([trial(_flip(choose.randrange(used))) for _ in range(flips)]),
        "zeroed": _summary([trial(lambda path: _write(path, last_page, bytes(_PAGE_BYTES)))]),
        "truncated": _summary([trial(lambda path: os.truncate(path, used // 2))]),
    }


def _flip(at: int) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        _write(path, at, bytes([path.read_bytes()[at] ^ 0xFF]))

    return spoil


def _write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data[: path.stat().st_size - at])


def _summary(trials: list[Found]) -> dict[str, Any]:
    """Count reported trials, messages read whole, and messages with other bytes."""
    whole = [len(set(each.numbers())) for each in trials]
    return {
        "trials": len(trials),
        "told": sum(bool(each.told) for each in trials),
        "silent_losses": sum(
            not each.told and count < MESSAGES for each, count in zip(trials, whole, strict=True)
        ),
        "unopened": sum(each.open_ms is None for each in trials),
        "fewest_read": min(whole),
        "most_read": max(whole),
        "wrong": sum(each.wrong for each in trials),
        "words": next((each.told[0][:200] for each in trials if each.told), None),
        "logged": next((each.logged[:200] for each in trials if each.logged), None),
    }
