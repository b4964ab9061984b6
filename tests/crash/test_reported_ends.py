"""Power cuts of a replica that counts: what it has reported stays, and so does what was durable."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog.errors import LakelogError
from lakelog.files.checkpoint import CheckpointKeeper, StoreCheckpoint
from lakelog.log.commit_log import LogFiles
from lakelog_testing.crash.filesystem import CrashPoint, SimFileSystem
from lakelog_testing.crash.images import different
from lakelog_testing.crash.opener import UnsyncedFileSystem
from lakelog_testing.scripted import ScriptedMaster
from plugins.replication.tests.replica.copies import make_log, until
from tests.support import sampling

SEGMENT: Final = 1 << 16
STEPS: Final = 12
SETTINGS: Final[dict[str, Any]] = {
    "segment_size_bytes": SEGMENT,
    "consume_queue": {"file_entries": 50},
    "hash_index": {"slots": 4, "entries": 100},
}


def reported(root: Path, log: bytes) -> list[CrashPoint]:
    """The points of a replica that receives ``log`` in steps; each with the ends given by then.

    These are the end that was reported, and the end that was published as durable.
    """
    step = len(log) // STEPS
    with ScriptedMaster(log[:step], segment_bytes=SEGMENT) as master:
        system = SimFileSystem(root)
        published = 0
        section = {
            "role": "slave",
            "master": master.address,
            "vouch": "received",
            "learner": False,
            "reconnect_interval_ms": 20,
        }

        def given() -> tuple[int, int]:
            """The first report, repeated until bytes came, asks for the log from 1 on."""
            return max((each for each in master.reports if each > 1), default=0), published

        system.witness = given
        try:
            with lakelog.open(
                root / "store",
                mode="replica",
                replicator="rocketmq-ha",
                rocketmq_ha=section,
                files=system,
                **SETTINGS,
            ) as store:
                for number in range(1, STEPS + 1):
                    end = len(log) if number == STEPS else number * step
                    master.append(log[master.end : end])
                    until(lambda: store.max_offset > end - 2_000)  # noqa: B023  # called at once
                    if number % 4:
                        master.await_report(store.max_offset)
                    else:
                        until(lambda: store.flushed_offset == store.max_offset)
                        published = store.flushed_offset
                    system.point("after a step")
            return system.points
        finally:
            system.close()


def lost(points: list[CrashPoint], place: Path, most: int) -> str | None:
    """The first loss in any image of the points; ``None`` without one."""
    rng = sampling.chance()
    after_reports = (point for point in rng.sample(points, len(points)) if point.before[0])
    for point, image in islice(different(after_reports, rng, 4), most):
        end, durable_end = point.before
        image.write_out(place)
        try:
            lakelog.recover(place / "store", files=UnsyncedFileSystem(), **SETTINGS)
            with lakelog.open(place / "store", mode="read", **SETTINGS) as store:
                if store.max_offset < end:
                    return f"{point.where}: {end} was reported, and {store.max_offset} is left"
                if store.flushed_offset < durable_end:
                    return f"{point.where}: {durable_end} was durable"
        except LakelogError as error:
            return f"{point.where}: {error}"
        finally:
            shutil.rmtree(place)
    return None


@pytest.mark.parametrize("most", [60, pytest.param(2_000, marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_what_was_reported_outlives_a_power_cut_before_its_note(tmp_path: Path, most: int) -> None:
    log = make_log(tmp_path / "master", 130)
    (tmp_path / "root").mkdir()
    points = reported(tmp_path / "root", log)
    assert lost(points, tmp_path / "image", most) is None


def unsynced_reports(patch: pytest.MonkeyPatch) -> None:
    """It reports what it has written."""

    def sync_bytes(self: LogFiles, _start: int, end: int) -> None:
        self.synced = end

    patch.setattr(LogFiles, "sync_bytes", sync_bytes)


def unnoted_ends(patch: pytest.MonkeyPatch) -> None:
    """It publishes a durable end that the checkpoint does not have."""
    real = CheckpointKeeper.advance

    def advance(self: CheckpointKeeper, reached: StoreCheckpoint | None = None) -> None:
        if reached is None:
            real(self)

    patch.setattr(CheckpointKeeper, "advance", advance)


@pytest.mark.parametrize("plant", [unsynced_reports, unnoted_ends])
def test_the_images_find_a_replica_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Any
) -> None:
    log = make_log(tmp_path / "master", 130)
    (tmp_path / "root").mkdir()
    with monkeypatch.context() as patch:
        plant(patch)
        points = reported(tmp_path / "root", log)
    assert lost(points, tmp_path / "image", 3_000)
