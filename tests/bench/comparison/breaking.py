"""Kills and power cuts at random moments, round after round."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.bench.comparison.running import Putting, read
from tests.bench.comparison.stores import Store
from tests.bench.comparison.tally import Tally
from tests.bench.model import CannotRunError, NothingPutError
from tests.faults.disks import Disk, made

_LONGEST_SECONDS: Final = 0.5
_LONGEST_BEFORE_CUT_SECONDS: Final = 3.0
"""Longer than the sync interval of the modes that do not wait for each sync."""
_ROUNDS_OF_A_STORE: Final = 5
_PAUSE_US: Final = 200
"""Pause between puts on a small disk, so that modes without a sync per put do not fill it."""
_FILE_SYSTEMS: Final = ("ext4", "xfs")


def kills(store: Store, scratch: Path, rounds: int, seed: int = 1) -> dict[str, Any]:
    """Kill the process while it puts; the same store continues, a new one every five rounds."""
    choose, tally = random.Random(seed), Tally()
    must, first = set[int](), 0
    for at in range(rounds):
        directory = scratch / str(at // _ROUNDS_OF_A_STORE)
        if at % _ROUNDS_OF_A_STORE == 0:
            must, first = set(), 0
        with Putting.started(store, directory, first) as putting:
            if not putting.wait_outcomes(1):
                raise NothingPutError(f"nothing was put in round {at + 1}: {putting.death()}")
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
                if not putting.wait_outcomes(1):
                    raise NothingPutError(f"nothing was put in round {at + 1}: {putting.death()}")
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
