"""A store crashes, lands before anybody recovers it, and crashes again: what landed stays.

Landing reads what a dead owner left and syncs it itself; its syncs go to a simulated file system,
of which a power cut then leaves what it may. Planted bugs show that the check can fail.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import pytest

import lakelog
from lakelog import Message
from lakelog.format.record_batch import Blank
from lakelog_lake.log.extent import DurableEnd
from lakelog_lake.tasks import task
from lakelog_lake.tasks.task import TaskLimits, next_spans
from lakelog_testing.crash import CrashPlan, CrashPoint, Image, SimFileSystem, images, nothing_lost
from lakelog_testing.crash.opener import Opener

PUTS: Final = 25
POINTS: Final = 12
IMAGES: Final = 6
STORE: Final = "store"


def crash_points(root: Path, opener: Opener, rng: Random, count: int) -> list[CrashPoint]:
    """Of an owner that nobody waits for: much of what it wrote is not durable."""
    root.mkdir()
    system = SimFileSystem(root)
    with opener.open(root / STORE, system) as store:
        for number in range(PUTS):
            store.put(Message("t", rng.randbytes(rng.choice((40, 1500, 2500))), queue_id=0))
            system.point(f"put {number}")
            if number % 7 == 3:
                store.flush()
        points = rng.sample(system.points, count)
    system.close()
    return points


class Crashes:
    """Lands what crashes left, and crashes that.

    :ivar broken: what of it was lost
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.patch = patch
        self.opener = Opener.of(CrashPlan(flush="none"))
        self.images = 0
        self.landed = 0
        self.broken: list[str] = []

    def run(self, seed: int, count: int = POINTS) -> None:
        rng = Random(seed)
        points = crash_points(self.folder / f"{seed}-run", self.opener, rng, count)
        for number, point in enumerate(points):
            killed = nothing_lost(point.state)
            cut = list(images(point, rng, IMAGES))[-1]
            for name, image, after in (("k", killed, point.state), ("c", cut, None)):
                root = self.folder / f"{seed}-{number}{name}"
                image.write_out(root)
                if (root / STORE / "commitlog").is_dir():
                    self._again(root, SimFileSystem(root, after=after), rng)

    def _again(self, root: Path, system: SimFileSystem, rng: Random) -> None:
        self.patch.setattr(task, "sync", lambda path: sync_in(system, path))
        landed, end = landing(root / STORE)
        self.landed += len(landed)
        system.point("landed")
        for number, image in enumerate(images(system.points[-1], rng, IMAGES)):
            self._look(root.with_name(f"{root.name}-{number}"), image, landed, end)
        system.close()

    def _look(self, root: Path, image: Image, landed: dict[int, bytes], end: int) -> None:
        self.images += 1
        image.write_out(root)
        with self.opener.open(root / STORE) as store:
            found = {each.physical_offset: bytes(each.body) for each in store.scan()}
            if end > store.max_offset:
                self.broken.append(f"landed up to {end}, the log ends at {store.max_offset}")
        lost = [offset for offset, body in landed.items() if found.get(offset) != body]
        if lost:
            self.broken.append(f"landed and lost: {lost}")


def sync_in(system: SimFileSystem, path: Path) -> None:
    if path.is_dir():
        system.sync_dir(path)
    else:
        file = system.open(path)
        file.sync()
        file.close()


def landing(path: Path) -> tuple[dict[int, bytes], int]:
    """What one pass lands: bodies by offset, and where the next one starts."""
    with lakelog.open(path, mode="read") as reader:
        spans = next_spans(reader, reader.min_offset, TaskLimits())
        if not spans:
            return {}, 0
        begin, end = spans[0].start, spans[-1].end
        bodies = {
            each.physical_offset: bytes(each.body)
            for each in reader.scan(begin, end, on_damage=lambda _: None)
        }
        return bodies, end


@pytest.fixture
def crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crashes:
    return Crashes(tmp_path, monkeypatch)


def test_what_landed_from_a_crashed_store_is_never_lost(crashes: Crashes) -> None:
    crashes.run(seed=1)
    assert crashes.images > POINTS
    assert crashes.landed > POINTS
    assert not crashes.broken


def test_a_blank_behind_damage_does_not_land(tmp_path: Path) -> None:
    """A recovery cuts both: the next message would stand before the end of what landed."""
    path, opener = tmp_path / STORE, Opener.of(CrashPlan(flush="none"))
    with opener.open(path) as store:
        while len(list((path / "commitlog").iterdir())) < 2:
            store.put(Message("t", bytes(2500), queue_id=0))
        first, *_ = [each for each in store.scan_pieces(0, None) if isinstance(each, Blank)]
        last = max(e.physical_offset for e in store.scan() if e.physical_offset < first.offset)
    one, two = sorted((path / "commitlog").iterdir())
    two.write_bytes(bytes(two.stat().st_size))
    with one.open("r+b") as file:
        os.pwrite(file.fileno(), bytes(first.offset - last), last)
    (path / "abort").write_text(str(os.getpid()))
    for noted in (path / "checkpoint", path / "lakelog" / "shared"):  # what the close noted
        noted.unlink()
    bodies, end = landing(path)
    assert (len(bodies) > 0, end) == (True, last)
    with opener.open(path) as store:
        assert store.max_offset == last


def landed_without_a_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(task, "sync_segments", lambda *_: None)


def end_of_the_log_taken_for_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DurableEnd, "behind", lambda _self, store, _start: store.max_offset)


@pytest.mark.parametrize("plant", [landed_without_a_sync, end_of_the_log_taken_for_durable])
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], crashes: Crashes, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(1, 33):  # which images there are depends on threads
        if not crashes.broken:
            crashes.run(seed, POINTS // 4)
    assert crashes.broken, f"{plant.__name__} was not found in {crashes.images} images"
