"""The disk's cache is lost: writes since its last flush are there or not, in any order, or torn.

A process puts while the disk under its file system records (see :mod:`tests.faults.recorder`).
From one recording come many images; the kernel mounts each, and what was acknowledged before the
cut is there.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.faults.checking import check_recovered, kept, opened
from tests.faults.conftest import Workers
from tests.faults.disks import FILE_SYSTEMS
from tests.faults.recorder import recording
from tests.faults.workload import TOPIC
from tests.support.rebooting import rebooted

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


def _id(value: object) -> str:
    return f"{value['writer']}-{value['flush']}" if isinstance(value, dict) else str(value)


def _check(
    workers: Workers, folder: Path, kind: str, settings: Mapping[str, Any], images: int, seed: int
) -> int:
    """Record, and look at so many images; how many acknowledged messages were looked for."""
    with recording(kind, folder) as recorded:
        path = recorded.disk.place / "store"
        outcome = workers.run(
            path, settings, workload="until-killed", kill_after_events=EVENTS, patience_seconds=100
        )
        assert not outcome.failures
        recorded.disk.unmount()
        first = outcome.told("ack")[0]["told_seconds"]
        checked, lost, torn = 0, 0, 0
        with recorded.mounted_cuts(first, images, seed) as cuts:
            for cut in cuts:
                must = kept(outcome.before(cut.seconds), settings, power_cut=True)
                rebooted(path)
                check_recovered(path, settings, must)
                _check_index(path, settings, must)
                checked += len(must)
                lost, torn = lost + cut.lost, torn + cut.torn
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
