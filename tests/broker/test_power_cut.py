"""The disk of a broker fails or is full: after a restart all acknowledged messages are present."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import attrs
import pytest

import lakelog
from lakelog.format.properties import TIMER_TOPIC
from lakelog_broker.appending import HALF_TOPIC
from lakelog_broker.embedded import EmbeddedBroker
from lakelog_broker.remoting.requests import RequestCode
from lakelog_broker.scheduled.transactions import OP_TOPIC
from lakelog_replication.remoting import BrokerRefused, call
from lakelog_replication.settings import Address
from lakelog_rocketmq.fastjson import parse_object
from plugins.broker.tests.raw_client import answer_to, send
from tests.broker.later import lakelogs_broker
from tests.faults.disks import Disk, eat, made, small
from tests.faults.recorder import recording
from tests.replication.masterbroker import SEGMENT
from tests.support.rebooting import rebooted
from tests.support.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]
TOPIC: Final = "Cut"
GROUP: Final = "readers"
COMMIT, ROLLBACK = 8, 12
KINDS: Final = "plain", "delay", "timer", "commit", "rollback", "half"
THREADS: Final = 4
REFUSED: Final = 4
PROGRESS: Final = "consumerOffset.json", "delayOffset.json", "timerProgress.json"
FAILED: Final = "a write or sync failed", "a sync of a queue failed"
"""The error of the log or of a queue, whichever is synced first on the failed disk."""
SOAK: Final = (pytest.mark.soak, pytest.mark.timeout(3600))
SIZES: Final = ("--set", f"segment_size_bytes={SEGMENT}", "--set", "preallocate=false")


@attrs.define
class Senders:
    """Threads that send messages of all kinds, and record the acknowledged ones.

    :ivar acknowledged: by body, when the answer came, by ``time.monotonic``
    :ivar halves: half messages by body, with their queue offsets
    :ivar refusals: the error that ended each thread
    """

    address: Address
    acknowledged: dict[str, float] = attrs.field(factory=dict)
    halves: dict[str, int] = attrs.field(factory=dict)
    refusals: list[Exception] = attrs.field(factory=list)
    _stop: Event = attrs.field(factory=Event)
    _threads: list[Thread] = attrs.field(factory=list)

    def start(self, first: int) -> None:
        """Start the threads; bodies are numbered from ``first`` on."""
        for number in range(THREADS):
            self._threads.append(Thread(target=self._send, args=(f"{first}-{number}", number)))
            self._threads[-1].start()

    def wait(self, count: int) -> None:
        until(lambda: len(self.acknowledged) >= count)

    def known(self, before: float = float("inf")) -> tuple[list[str], dict[str, int]]:
        found = [body for body, at in self.acknowledged.copy().items() if at < before]
        halves = self.halves.copy()
        return found, {body: halves[body] for body in found if body in halves}

    def stop(self) -> None:
        self._stop.set()
        for each in self._threads:
            each.join()

    def _send(self, letters: str, queue_id: int) -> None:
        try:
            number = 0
            while not self._stop.is_set():
                kind = KINDS[number % len(KINDS)]
                self._send_one(f"{letters}-{number}-{kind}", kind, queue_id)
                number += 1
        except (BrokerRefused, OSError) as error:
            self.refusals.append(error)

    def _send_one(self, body: str, kind: str, queue_id: int) -> None:
        properties: dict[str, Any] = {"UNIQ_KEY": body}
        if kind == "delay":
            properties["DELAY"] = 1
        elif kind == "timer":
            properties["TIMER_DELIVER_MS"] = time.time_ns() // 1_000_000 + 1_500
        elif kind != "plain":
            properties |= {"TRAN_MSG": "true", "PGROUP": "producers"}
        sent = answer_to(str(self.address), TOPIC, body.encode(), queue_id, **properties).fields
        if "TRAN_MSG" in properties:
            self.halves[body] = int(sent["queueOffset"])
        self.acknowledged[body] = time.monotonic()
        if kind in {"commit", "rollback"}:
            self._end(sent, COMMIT if kind == "commit" else ROLLBACK)
        elif kind == "plain":
            next_offset = str(int(sent["queueOffset"]) + 1)
            fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id)}
            fields["commitOffset"] = next_offset
            call(self.address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    def _end(self, sent: Any, outcome: int) -> None:
        fields = {
            "producerGroup": "producers",
            "tranStateTableOffset": sent["queueOffset"],
            "commitLogOffset": str(int(sent["msgId"][-16:], 16)),
            "commitOrRollback": str(outcome),
            "fromTransactionCheck": "false",
            "msgId": sent["msgId"],
        }
        call(self.address, RequestCode.END_TRANSACTION, fields)


@pytest.fixture(params=["ext4", "xfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    with made(request.param, tmp_path) as disk:
        yield disk


@pytest.mark.parametrize("cuts", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_a_cut_ends_the_broker_and_loses_nothing_acknowledged(
    disk: Disk, tmp_path: Path, cuts: int
) -> None:
    path = disk.place / "store"
    acknowledged: list[str] = []
    halves: dict[str, int] = {}
    for number in range(cuts):
        options = (*SIZES, "--set", "flush=group-commit")
        with lakelogs_broker(disk.place, 0, options, said=tmp_path / "said") as serving:
            senders = Senders(serving.server)
            senders.start(number)
            try:
                senders.wait(200)
                until(lambda: has_progress(path))
                known = senders.known()
                disk.cut()
                ended = serving.process.wait(60)
            finally:
                senders.stop()
            said = (tmp_path / "said").read_text()
            # The kernel kills a process (SIGBUS) that accesses a mapped page of the failed disk.
            is_named = any(each in said for each in FAILED)
            assert ended == -signal.SIGBUS or (ended == REFUSED and is_named), (ended, said)
        if disk.cuts_at_once:
            known = senders.known()
        acknowledged += known[0]
        halves |= known[1]
        disk.unmount()
        disk.mount()
        rebooted(path)
        check_progress(path)
    come(path, acknowledged, halves)


@pytest.mark.parametrize(
    ("kind", "images"),
    [("ext4", 2), *(pytest.param(kind, 20, marks=SOAK) for kind in ("ext4", "xfs"))],
)
def test_nothing_acknowledged_is_lost_after_writes_were_reordered(
    kind: str, images: int, tmp_path: Path
) -> None:
    with recording(kind, tmp_path) as recorded:
        path = recorded.disk.place / "store"
        options = (*SIZES, "--set", "flush=group-commit")
        with lakelogs_broker(path.parent, 0, options, said=tmp_path / "said") as serving:
            senders = Senders(serving.server)
            senders.start(0)
            try:
                senders.wait(100)
                until(lambda: has_progress(path))
                since = time.monotonic()
                senders.wait(len(senders.acknowledged) + 400)
                serving.end(killed=True)
            finally:
                senders.stop()
        recorded.disk.unmount()
        lost = torn = 0
        with recorded.mounted_cuts(since, images, 3) as cuts:
            for cut in cuts:
                rebooted(path)
                check_progress(path)
                come(path, *senders.known(cut.seconds))
                lost, torn = lost + cut.lost, torn + cut.torn
    counts = f"{images} images, {lost} writes lost, {torn} torn, 0 violations"
    print(f"{kind}: {counts}")  # noqa: T201  # the record of a soak


def has_progress(path: Path) -> bool:
    """Whether all files of progress were saved; they are saved in any order."""
    return all((path / "config" / name).exists() for name in PROGRESS)


def check_progress(path: Path) -> None:
    """Check that no saved progress is ahead of the log that the cut left."""
    with lakelog.open(path, mode="exclusive") as store:
        ends = {
            (topic, queue.queue_id): (store.queue_bounds(topic, queue.queue_id) or (0, 0))[1]
            for topic in store.topics()
            for queue in store.queues(topic)
        }
        for group, topics in store.groups().items():
            for topic, queues in topics.items():
                for queue_id, offset in queues.items():
                    assert offset <= ends.get((topic, queue_id), 0), (group, topic, queue_id)
        for level, offset in _content(path, "delayOffset.json").get("offsetTable", {}).items():
            assert offset <= ends.get(("SCHEDULE_TOPIC_XXXX", int(level) - 1), 0)
        timers = _content(path, "timerProgress.json")
        assert timers.get("readOffset", 0) <= ends.get((TIMER_TOPIC, 0), 0)


def _content(path: Path, name: str) -> dict[str, Any]:
    """A file of progress; empty if the cut came before the first one was durable."""
    file = path / "config" / name
    return parse_object(file.read_bytes()) if file.exists() else {}


def come(path: Path, acknowledged: list[str], halves: dict[str, int]) -> None:
    """Check that all acknowledged messages are delivered; transactions have ended, or wait."""
    with EmbeddedBroker(path) as broker:

        def bodies() -> set[str]:
            return {bytes(each.body).decode() for each in broker.messages(TOPIC)}

        due = {each for each in acknowledged if each.endswith(("plain", "delay", "timer"))}
        with suppress(AssertionError):
            until(lambda: due <= bodies())
        missing = sorted(due - bodies())
        assert not missing
        ended = {
            int(number)
            for each in broker.messages(OP_TOPIC)
            for number in bytes(each.body).split(b",")
            if number
        }
        # A half message that is checked is appended again, and its former record is ended.
        waiting = {
            bytes(each.body).decode()
            for each in broker.messages(HALF_TOPIC)
            if each.queue_offset not in ended
        }
        found = bodies()
        for body in halves:
            if body.endswith("half"):
                assert body in waiting
            if body.endswith("commit"):
                assert body in waiting | found
            else:
                assert body not in found


@pytest.fixture(params=["tmpfs", "ext4"])
def full_soon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with small(request.param, tmp_path) as place:
        yield place


@pytest.mark.sample(2)
@pytest.mark.parametrize("flush", ["timed", "group-commit"])
def test_a_full_disk_refuses_messages_until_there_is_room(
    full_soon: Path, tmp_path: Path, flush: str
) -> None:
    options = (*SIZES, "--set", f"flush={flush}")
    with lakelogs_broker(full_soon, 0, options, said=tmp_path / "said") as serving:
        process, address = serving.process, serving.server
        full, roomy = Senders(address), Senders(address)
        full.start(0)
        full.wait(50)
        eaten = eat(full_soon, 2 * SEGMENT)
        until(lambda: is_full(address))
        full.stop()
        assert process.poll() is None
        eaten.unlink()
        until(lambda: not is_full(address))
        roomy.start(1)
        roomy.wait(50)
        roomy.stop()
        assert not roomy.refusals
        process.terminate()
        assert process.wait(60) == 0
    acknowledged = [*full.acknowledged, *roomy.acknowledged]
    come(full_soon / "store", acknowledged, full.halves | roomy.halves)


def is_full(address: Address) -> bool:
    try:
        send(str(address), "Filler", bytes(SEGMENT // 8))
    except BrokerRefused:
        return True
    return False
