"""The disk's cache is lost: writes since its last flush are there or not, in any order, or torn.

A process puts while the disk under its file system records (see :mod:`tests.faults.recorder`).
From one recording come many images; the kernel mounts each, and what was acknowledged before the
cut is there.
"""

from __future__ import annotations

import itertools
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.faults.checking import check_recovered, kept, opened, rebooted
from tests.faults.conftest import Workers
from tests.faults.disks import FILE_SYSTEMS, Disk
from tests.faults.recorder import SECTOR, Images, recording
from tests.faults.workload import TOPIC

pytestmark = pytest.mark.root
TIMED: Final = {"flush_interval_ms": 20, "flush_least_pages": 0, "flush_thorough_interval_ms": 0}
ALL: Final = tuple(
    {"writer": writer, "flush": flush, "timed": TIMED}
    for writer, flush in itertools.product(
        ("file", "mmap", "staged", "direct"), ("inline", "group-commit", "timed")
    )
)
SAMPLE: Final = (("ext4", ALL[1], 4), ("ext4-without-journal", ALL[3], 3), ("xfs", ALL[4], 4))
EVENTS: Final = 150
SOAKED_IMAGES: Final = 14
"""For each of 36 pairs of file system and settings: 504 in all."""
UNIT_BYTES: Final = {"ext4-without-journal": 4096, "xfs": 4096}
"""What a disk must write whole for a file system, if more than a sector: a torn block of a folder
loses names that were synced, without a journal; xfs then cannot be mounted (its checksum differs).
"""


def _id(value: object) -> str:
    return f"{value['writer']}-{value['flush']}" if isinstance(value, dict) else str(value)


def _check(
    workers: Workers, folder: Path, kind: str, settings: Mapping[str, Any], images: int, seed: int
) -> int:
    """Record, and look at so many images; how many acknowledged messages were looked for."""
    with recording(kind, folder) as (disk, base, log):
        path = disk.place / "store"
        outcome = workers.run(
            path, settings, workload="until-killed", kill_after_events=EVENTS, patience_seconds=100
        )
        assert not outcome.failures
        disk.unmount()
    first = outcome.told("ack")[0]["told_seconds"]
    checked, lost, torn = 0, 0, 0
    cut_disk = Disk(folder / "cut", disk.place, cuts_at_once=True)
    making = Images(base, log, random.Random(seed), UNIT_BYTES.get(kind, SECTOR))
    for cut in making.made(cut_disk.image, first, images):
        answered = outcome.before(cut.seconds)
        must = kept(answered, settings, power_cut=True)
        if kind == "ext4-without-journal":  # as each boot does
            command = ["e2fsck", "-fy", str(cut_disk.image)]
            done = subprocess.run(command, check=False, capture_output=True)
            assert done.returncode in {0, 1}, done.stdout
        cut_disk.mount()  # fails the test where it cannot be mounted
        try:
            rebooted(path)
            check_recovered(path, settings, must)
            _check_index(path, settings, must)
        finally:
            cut_disk.unmount()
        checked, lost, torn = checked + len(must), lost + cut.lost, torn + cut.torn
    counts = f"{images} images, {checked} messages, {lost} writes lost, {torn} torn, 0 violations"
    print(f"{kind} {_id(settings)}: {counts}")  # noqa: T201  # the record of a soak
    return checked


def _check_index(path: Path, settings: Mapping[str, Any], must: set[str]) -> None:
    """Each is found by its key, once."""
    with opened(path, settings) as store:
        for key in must:
            assert [each.properties["KEYS"] for each in store.query(TOPIC, key)] == [key]


@pytest.mark.parametrize(("kind", "settings", "images"), SAMPLE, ids=_id)
def test_what_was_acknowledged_is_there_after_writes_were_reordered(
    workers: Workers, tmp_path: Path, kind: str, settings: Mapping[str, Any], images: int
) -> None:
    assert _check(workers, tmp_path, kind, settings, images, 1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("settings", ALL, ids=_id)
@pytest.mark.parametrize("kind", sorted(FILE_SYSTEMS))
def test_500_images(
    workers: Workers, tmp_path: Path, kind: str, settings: Mapping[str, Any]
) -> None:
    assert _check(workers, tmp_path, kind, settings, SOAKED_IMAGES, 2)
