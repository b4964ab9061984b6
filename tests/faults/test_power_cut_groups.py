"""The power goes while members of a group acknowledge, return and commit: nothing is passed over.

Committed offsets are there afterwards, and none is beyond the end of its queue. A message that is
in the log, and was not acknowledged, is handed out, or its copy in a retry topic is. New messages
are handed out. Nothing comes again that is below a committed offset. Each delayed message in the
log comes. The power goes as in :mod:`tests.faults.test_power_cut`, or as in
:mod:`tests.faults.test_reordered_writes`.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

import lakelog
from lakelog import Message, Store
from lakelog.format.properties import TIMER_TOPIC
from tests.faults.consuming import LATE, QUEUES, TOPIC, settings_of
from tests.faults.disks import FILE_SYSTEMS, Disk, made
from tests.faults.recorder import recording
from tests.support.killing import ROOT
from tests.support.rebooting import rebooted
from tests.support.waiting import until

pytestmark = pytest.mark.root
SAMPLE: Final = (("ext4", "timed"), ("xfs", "group-commit"))
FLUSHES: Final = ("inline", "group-commit", "timed")
IMAGES: Final = (("ext4", "group-commit", 3), ("xfs", "timed", 2))
SOAKED_IMAGES: Final = 10
"""For each of 12 pairs of file system and flush strategy."""
COMMITS: Final = 12
NEW: Final = 30


@attrs.define
class Consuming:
    """The program, and what it has told."""

    process: subprocess.Popen[str]
    told: list[tuple[float, str, Any]] = attrs.field(factory=list)

    @classmethod
    def started(cls, path: Path, flush: str, seed: int) -> Consuming:
        command = [sys.executable, "-m", "tests.faults.consuming", str(path), flush, str(seed)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        return cls(process)

    def read(self) -> None:
        """Note each line with its time, until the program ends."""
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.told.append(tuple(json.loads(line)))

    def of(self, step: str, before: float = float("inf")) -> list[Any]:
        return [what for at, each, what in self.told if each == step and at < before]


def _cut(disk: Disk, path: Path, flush: str, seed: int) -> int:
    """Cut the power, switch it on again, and look; returns the number of messages told."""
    program = Consuming.started(path, flush, seed)
    reading = threading.Thread(target=program.read)
    reading.start()
    until(lambda: len(program.of("put")) > 50)
    time.sleep(random.Random(seed).uniform(0.05, 0.6))
    begun = time.monotonic()
    disk.cut()
    try:
        program.process.wait(60)
    finally:
        program.process.kill()
        program.process.wait()
        reading.join()
    disk.unmount()
    disk.mount()
    rebooted(path)
    with lakelog.open(path, **settings_of(flush)) as store:
        check(store, program, begun, flush)
    shutil.rmtree(path)
    return len(program.of("put"))


def check(
    store: Store, program: Consuming, begun: float, flush: str, ended: float = float("inf")
) -> None:
    """Look at what a cut left that began and ended at these times."""
    store.wait_dispatched()
    there = {int(bytes(each.body)) for each in messages(store, TOPIC)}
    if flush != "timed":
        assert there >= set(program.of("put", begun))
    check_offsets(store, program, begun)
    waiting = {int(bytes(each.body)) for each in messages(store, TIMER_TOPIC)}
    if flush != "timed":
        assert waiting >= set(program.of("delayed", begun))
    until(lambda: {int(bytes(each.body)) for each in messages(store, LATE)} >= waiting)
    new = {10**9 + number for number in range(NEW)}
    for number in sorted(new):
        store.put(Message(TOPIC, b"%d" % number, queue_id=number % QUEUES))
    store.wait_dispatched()
    with store.consumer("c", TOPIC, start="earliest") as consumer:
        seen = {int(bytes(each.body)) for each in consumer.poll(100_000)}
    assert seen >= new
    wanted = (there - set(program.of("acking", ended))) | new
    found = {int(bytes(each.body)) for each in messages(store, "%DLQ%g")}
    committed = store.groups().get("g", {})
    with store.subscribe("g", TOPIC, start="earliest") as member:

        def is_complete() -> bool:
            for each in member.poll(100):
                assert each.queue_offset >= committed.get(each.topic, {}).get(each.queue_id, 0)
                found.add(int(bytes(each.message.body)))
                member.ack(each)
            return found >= wanted

        until(is_complete)


def check_offsets(store: Store, program: Consuming, begun: float) -> None:
    """No offset is beyond the end of its queue, and none that was committed is taken back."""
    committed = store.groups()
    ends = {(each.topic, each.queue_id): each.max_offset for each in store.queues()}
    beyond = [
        (group, topic, queue, offset)
        for group, tables in committed.items()
        for topic, offsets in tables.items()
        for queue, offset in offsets.items()
        if offset > ends.get((topic, queue), 0)
    ]
    assert beyond == []
    for tables in program.of("committed", begun)[-1:]:
        for queue, offset in tables.get(TOPIC, {}).items():
            assert committed["g"][TOPIC][int(queue)] >= offset
    for offsets in program.of("consumed", begun)[-1:]:
        for queue, offset in offsets.items():
            assert committed["c"][TOPIC][int(queue)] >= offset


def messages(store: Store, topic: str) -> list[Any]:
    found: list[Any] = []
    for each in store.queues(topic) if topic in store.topics() else ():
        at = each.min_offset
        while at < each.max_offset:
            result = store.get(topic, each.queue_id, at, 1000)
            found += result.messages
            at = result.next_offset
    return found


def _check_images(folder: Path, kind: str, flush: str, images: int, seed: int) -> None:
    """Record the writes of the program, and look at so many images that a cut could leave."""
    with recording(kind, folder) as recorded:
        path = recorded.disk.place / "store"
        program = Consuming.started(path, flush, seed)
        reading = threading.Thread(target=program.read)
        reading.start()
        try:
            until(lambda: len(program.of("committed")) >= COMMITS)
        finally:
            program.process.kill()
            program.process.wait()
            reading.join()
        recorded.disk.unmount()
        assert program.of("nack")
        lost = torn = 0
        since = next(at for at, step, _ in program.told if step == "committed")
        with recorded.mounted_cuts(since, images, seed) as cuts:
            for cut in cuts:
                rebooted(path)
                with lakelog.open(path, **settings_of(flush)) as store:
                    check(store, program, cut.seconds, flush, cut.seconds)
                lost, torn = lost + cut.lost, torn + cut.torn
    counts = f"{images} images, {lost} writes lost, {torn} torn, 0 violations"
    print(f"{kind} {flush}: {counts}")  # noqa: T201  # the record of a soak


@pytest.mark.parametrize(("kind", "flush"), SAMPLE)
def test_no_message_is_passed_over(tmp_path: Path, kind: str, flush: str) -> None:
    with made(kind, tmp_path) as disk:
        assert all(_cut(disk, disk.place / f"store-{seed}", flush, seed) for seed in range(2))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("flush", FLUSHES)
@pytest.mark.parametrize("kind", sorted(FILE_SYSTEMS))
def test_power_cuts_at_random_instants(tmp_path: Path, kind: str, flush: str) -> None:
    with made(kind, tmp_path) as disk:
        told = [_cut(disk, disk.place / f"store-{seed}", flush, seed) for seed in range(5)]
    assert min(told)


@pytest.mark.parametrize(("kind", "flush", "images"), IMAGES)
def test_no_message_is_passed_over_after_writes_were_reordered(
    tmp_path: Path, kind: str, flush: str, images: int
) -> None:
    _check_images(tmp_path, kind, flush, images, 1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("flush", FLUSHES)
@pytest.mark.parametrize("kind", sorted(FILE_SYSTEMS))
def test_120_images(tmp_path: Path, kind: str, flush: str) -> None:
    _check_images(tmp_path, kind, flush, SOAKED_IMAGES, 2)
