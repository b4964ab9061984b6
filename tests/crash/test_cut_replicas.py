"""Crashes and power cuts while a replica is cut where it differs from its master."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import pytest

import lakelog
from lakelog.files.checkpoint import read_checkpoint, write_checkpoint
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.identity import ReplicaState, read_replica, write_replica
from lakelog.format.layout import ABORT_FILE
from lakelog_testing.crash.filesystem import CrashPoint, SimFileSystem
from lakelog_testing.crash.images import Image, different
from lakelog_testing.crash.opener import UnsyncedFileSystem
from tests.support import sampling

SEGMENT: Final = 1 << 13
COUNT: Final = 60
FILES: Final = RealFileSystem()
SETTINGS: Final[dict[str, Any]] = {
    "segment_size_bytes": SEGMENT,
    "consume_queue": {"file_entries": 5},
    "hash_index": {"slots": 4, "entries": 12},
}


@attrs.frozen
class Case:
    """A replica that is to be cut.

    :ivar log: its bytes; :ivar places: start and end of each message; :ivar cut: where to cut
    :ivar vouched: the end that counts as durable
    """

    log: bytes
    places: list[tuple[int, int]]
    cut: int
    vouched: int

    def check(self, path: Path) -> None:
        """The log is cut, with queues, index and durable end; nothing else has changed."""
        lakelog.recover(path, files=UnsyncedFileSystem(), **SETTINGS)
        assert read_replica(FILES, path) == ReplicaState("127.0.0.1:1")
        assert log_of(path) == self.log[: self.cut]
        kept = [start for start, end in self.places if end <= self.cut]
        with lakelog.open(path, mode="read", **SETTINGS) as store:
            assert store.max_offset == self.cut
            assert store.flushed_offset == min(self.vouched, self.cut)
            assert [each.physical_offset for each in store.scan()] == kept
            queued = [
                each.physical_offset
                for queue in store.queues()
                for each in store.read(queue.topic, queue.queue_id)
            ]
            assert sorted(queued) == kept
            for number, (start, end) in enumerate(self.places):
                found = [each.physical_offset for each in store.query("orders", f"k{number}")]
                assert found == ([start] if end <= self.cut else [])
        self._check_quarantine(path)

    def _check_quarantine(self, path: Path) -> None:
        kept = [each.read_bytes() for each in (path / "lakelog/quarantine").iterdir()]
        for start, end in self.places:
            if end > self.cut:
                assert any(self.log[start:end] in each for each in kept)


def log_of(path: Path) -> bytes:
    """The bytes of the log without the zeros at its end."""
    files = sorted((path / "commitlog").iterdir())
    return b"".join(each.read_bytes() for each in files).rstrip(b"\0")


def make(path: Path, number: int, durable_number: int, *, killed: bool) -> Case:
    """A replica that is to be cut before a message, and is durable up to another one."""
    with lakelog.open(path, **SETTINGS) as store:
        for each in range(COUNT):
            body = each.to_bytes(8, "little") * 40 + b"end"
            store.put(lakelog.Message("orders", body, keys=f"k{each}", queue_id=each % 2))
        places = [(each.physical_offset, each.physical_offset + each.size) for each in store.scan()]
    case = Case(log_of(path), places, places[number][0], places[durable_number][0])
    checkpoint = read_checkpoint(FILES, path)._replace(confirm_offset=case.vouched)
    write_checkpoint(FILES, path, checkpoint)
    write_replica(FILES, path, ReplicaState("127.0.0.1:1", case.cut))
    if killed:
        (path / ABORT_FILE).touch()
    return case


def crashed(root: Path) -> list[CrashPoint]:
    """All points of a recovery that cuts."""
    system = SimFileSystem(root)
    try:
        lakelog.recover(root / "store", files=system, **SETTINGS)
        return system.points
    finally:
        system.close()


def some_images(points: list[CrashPoint], rng: Random, most: int) -> Iterator[Image]:
    """Different images of all points, or of some, in any order."""
    found = different(rng.sample(points, len(points)), rng, 3)
    return (image for _, image in islice(found, most))


CASES = [(40, 20), (55, 58), (3, 50), (0, 0), (59, 59)]


@pytest.mark.parametrize(("number", "durable_number"), CASES)
def test_an_interrupted_cut_is_ended_by_the_next_open(
    tmp_path: Path, number: int, durable_number: int
) -> None:
    killed = sampling.chance().random() < 0.5
    check(tmp_path, number, durable_number, 8, killed=killed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize(("number", "durable_number"), CASES)
def test_a_cut_interrupted_anywhere_is_ended_by_the_next_open(
    tmp_path: Path, number: int, durable_number: int, *, killed: bool
) -> None:
    check(tmp_path, number, durable_number, 150, killed=killed)


def check(tmp_path: Path, number: int, durable_number: int, most: int, *, killed: bool) -> None:
    rng = sampling.chance()
    root = tmp_path / "root"
    case = make(root / "store", number, durable_number, killed=killed)
    points = crashed(root)
    case.check(root / "store")
    for image in some_images(points, rng, most):
        place = tmp_path / "image"
        image.write_out(place)
        if rng.random() < 0.2:  # a second crash, while the next open does the rest
            (again,) = some_images(crashed(place), rng, 1)
            shutil.rmtree(place)
            again.write_out(place)
        case.check(place / "store")
        shutil.rmtree(place)
