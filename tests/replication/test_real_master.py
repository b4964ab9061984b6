"""A replica of a real broker has the same bytes, after kills of both, and after a lost tail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import pytest

import lakelog
from lakelog_replication.remoting import BrokerRefused, broker_config, call, runtime_info
from lakelog_replication.replica.groups import consumer_offsets
from lakelog_rocketmq.config.lenient import parse_object
from tests.oracle.java import Oracle
from tests.replication import dumps
from tests.replication.masterbroker import SEGMENT, Broker, broker
from tests.replication.tables import Table
from tests.replication.test_live_table import offsets
from tests.support import sampling

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

TOPIC: Final = "Copied"
LONG_MS: Final = 3_600_000


def until(done: Callable[[], bool], timeout_s: float = 120.0) -> None:
    """Wait for a condition."""
    end = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def section(master: Broker, **more: Any) -> dict[str, Any]:
    """Return the settings of a replica with short intervals."""
    return {
        "role": "slave",
        "master": str(master.slaves),
        "vouch": "received",
        "reconnect_interval_ms": 100,
        "sync_interval_ms": 20,
        **more,
    }


BROKER_FILES: Final[dict[str, Any]] = {
    "segment_size_bytes": SEGMENT,
    "consume_queue": {"file_entries": 30_000},
    "hash_index": {"slots": 100_000, "entries": 400_000},
}
"""The file sizes of these tests' brokers, which refuse files of other sizes."""


@contextmanager
def replica(path: Path, master: Broker, **more: Any) -> Iterator[lakelog.Store]:
    """Open a replica in this process."""
    with lakelog.open(
        path,
        mode="replica",
        replicator="rocketmq-ha",
        rocketmq_ha=section(master, **more),
        **BROKER_FILES,
    ) as store:
        yield store


def end_of(master: Broker) -> int:
    """Return the end offset of the master's log.

    A broker may refuse the first request after its start, because its statistics are empty.
    """
    found: list[int] = []

    def is_told() -> bool:
        with suppress(BrokerRefused):
            found.append(runtime_info(master.client).end)
        return bool(found)

    until(is_told)
    return found[0]


def log_of(store: Path, end: int) -> bytes:
    """Return the bytes of a log that begins at 0."""
    files = sorted((store / "commitlog").glob("0*"))
    return b"".join(file.read_bytes() for file in files)[:end]


def numbers(store: lakelog.Store) -> list[int]:
    """Return the numbers of all messages, in log order."""
    return [int.from_bytes(each.body[:8]) for each in store.scan() if each.topic == TOPIC]


def queued(store: lakelog.Store) -> dict[tuple[str, int], list[int]]:
    """Return the physical offsets of each queue of the tests' topic."""
    places = [(each.topic, each.queue_id) for each in store.queues() if each.topic == TOPIC]
    return {place: [each.physical_offset for each in store.read(*place)] for place in places}


def test_a_copy_has_the_bytes_queues_and_keys_of_its_master(oracle: Oracle, tmp_path: Path) -> None:
    with broker(tmp_path / "broker") as master:
        master.send_many(TOPIC, 0, 300, size=5000)
        with replica(tmp_path / "copy", master, learner=False) as store:
            until(lambda: store.max_offset == end_of(master))
            master.send_many(TOPIC, 300, 40)
            end = end_of(master)
            until(lambda: store.max_offset == end)
            assert end > SEGMENT
            assert store.wait_dispatched()
            until(lambda: store.flushed_offset == end)
            assert numbers(store) == list(range(340))
            assert [int.from_bytes(each.body[:8]) for each in store.query(TOPIC, "k320")] == [320]
            copied = queued(store)
            assert broker_config(master.client)["mappedFileSizeCommitLog"] == str(SEGMENT)
        master.stop()  # the index of a killed broker lacks keys
        assert log_of(tmp_path / "copy", end) == log_of(master.store, end)
        rows = dumps.contents(oracle, tmp_path / "copy", dumps.OF_MASTER)
        dumps.check_equal(rows, dumps.contents(oracle, master.store, dumps.OF_MASTER))
        with lakelog.open(
            master.store, mode="read", segment_size_bytes=SEGMENT, flush="none"
        ) as original:
            assert queued(original) == copied


def test_what_the_master_has_synced_counts_as_durable(tmp_path: Path) -> None:
    with broker(tmp_path / "broker", flushDiskType="SYNC_FLUSH") as master:
        master.send_many(TOPIC, 0, 50)
        asked = {"vouch": "flushed", "broker": str(master.client)}
        with replica(tmp_path / "copy", master, **asked) as store:
            until(lambda: store.flushed_offset == end_of(master))
            master.send_many(TOPIC, 50, 50)
            end = end_of(master)
            until(lambda: store.flushed_offset == end)
            assert len(numbers(store)) == 100


def test_positions_of_consumer_groups_come_along(tmp_path: Path) -> None:
    with broker(tmp_path / "broker") as master:
        master.send_many(TOPIC, 0, 40)
        master.commit("readers", TOPIC, 1, 7)
        asked = {"broker": str(master.client), "groups_interval_ms": 50}
        with replica(tmp_path / "copy", master, **asked) as store:
            until(lambda: "readers" in store.groups())
            assert store.groups()["readers"][TOPIC] == {1: 7}
            master.commit("readers", TOPIC, 2, 3)
            until(lambda: store.groups()["readers"][TOPIC] == {1: 7, 2: 3})


def test_a_promoted_replica_has_the_topics_and_groups_of_its_master(tmp_path: Path) -> None:
    copy = tmp_path / "promoted" / "store"
    with broker(tmp_path / "broker") as master:
        master.create_topic("Planned", queues=3)
        master.send_many("Planned", 0, 30)
        master.commit("readers", "Planned", 1, 7)
        asked = {"broker": str(master.client), "groups_interval_ms": 50}
        with replica(copy, master, **asked) as store:
            until(lambda: store.max_offset == end_of(master))
            wanted = configs(master)
            until(lambda: "readers" in store.groups() and there(copy) == wanted)
            end = store.max_offset
    lakelog.promote(copy, **BROKER_FILES)
    with broker(tmp_path / "promoted") as promoted:
        assert end_of(promoted) >= end
        found = configs(promoted)
        assert found[0]["Planned"] == wanted[0]["Planned"]
        assert found[0]["Planned"]["writeQueueNums"] == 3
        assert found[1]["readers"] == wanted[1]["readers"]
        assert consumer_offsets(promoted.client)["Planned@readers"] == {1: 7}
        assert promoted.send("Planned", b"after") >= end


def configs(master: Broker) -> list[dict[str, Any]]:
    """Return the topics and the groups of a broker."""
    answers = [call(master.client, code).body for code in (21, 201)]
    topics, groups = map(parse_object, answers)
    return [topics["topicConfigTable"], groups["subscriptionGroupTable"]]


def there(copy: Path) -> list[dict[str, Any]]:
    """Return topics and groups from a replica's files."""
    found = []
    for file, table in (
        ("topics.json", "topicConfigTable"),
        ("subscriptionGroup.json", "subscriptionGroupTable"),
    ):
        path = copy / "config" / file
        found.append(parse_object(path.read_bytes())[table] if path.exists() else {})
    return found


@contextmanager
def replicating(path: Path, master: Broker, *more: str) -> Iterator[Callable[[], None]]:
    """Run ``lakelog replicate``; yields a function that kills and restarts it."""
    command = [
        *(sys.executable, "-m", "lakelog", "replicate", str(path), "--from", str(master.slaves)),
        *("--broker", str(master.client), "--vouch", "received"),
        *("--set", "rocketmq-ha.reconnect_interval_ms=100", *more),
    ]
    with (path.parent / "replicate.out").open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)

        def again() -> None:
            nonlocal process
            process.send_signal(signal.SIGKILL)
            process.wait()
            process = subprocess.Popen(command, stdout=out, stderr=out)

        try:
            yield again
        finally:
            process.terminate()
            assert process.wait(60) == 0, (path.parent / "replicate.out").read_text()[-3000:]


def reached(path: Path) -> int:
    """Return the end offset of a copy that is open in another process."""
    try:
        with lakelog.open(path, mode="read") as store:
            return store.max_offset
    except lakelog.LakelogError:
        return -1


def progress(path: Path, acknowledged: list[int], count: int) -> None:
    """Wait until the copy has grown, and ``count`` further messages are acknowledged."""
    before, sent = reached(path), len(acknowledged)
    until(lambda: reached(path) > before and len(acknowledged) >= sent + count)


@pytest.mark.parametrize(
    "rounds", [1, pytest.param(10, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
def test_kills_of_either_side_leave_the_same_bytes_and_rows(
    oracle: Oracle, tmp_path: Path, rounds: int
) -> None:
    chance, path = sampling.chance(), tmp_path / "copy"
    lake = Table(tmp_path / "lake")
    acknowledged: list[int] = []
    over = Event()

    def send(master: Broker) -> None:
        first = 0
        while not over.is_set():
            acknowledged.extend(master.send_many(TOPIC, first, 20))
            first += 20
            over.wait(0.05)  # what comes back has to catch up

    with broker(tmp_path / "broker") as master:
        sender = Thread(target=send, args=(master,))
        sender.start()
        try:
            with replicating(path, master, *lake.words) as kill_copy:
                for _ in range(rounds):
                    for kill in (kill_copy, master.kill):
                        progress(path, acknowledged, chance.randrange(100))
                        kill()
                    master.start()
                over.set()
                sender.join()
                end = end_of(master)
                until(lambda: reached(path) == end)
                lake.wait_for(lambda: lake.offsets() == offsets(path))
        finally:
            over.set()
            sender.join()
        master.kill()
        assert log_of(path, end) == log_of(master.store, end)
        copied = dumps.contents(oracle, path, dumps.OF_LAKELOG)
        original = dumps.contents(oracle, master.store, dumps.OF_MASTER)
        dumps.check_equal(copied, original, was_killed=True)
    with lakelog.open(path, mode="read") as store:
        found = numbers(store)
        assert set(acknowledged) <= set(found)
        assert sum(map(len, queued(store).values())) == len(found)


def lose_tail(master: Broker, count: int) -> int:
    """Zero the last ``count`` records in the files of a stopped master; return their offset."""
    with lakelog.open(master.store, mode="read", segment_size_bytes=SEGMENT, flush="none") as store:
        start = [each.physical_offset for each in store.scan()][-count]
    segment = master.store / "commitlog" / f"{start - start % SEGMENT:020d}"
    with segment.open("r+b") as file:
        file.seek(start % SEGMENT)
        file.write(bytes(SEGMENT - start % SEGMENT))
    return start


def grow(master: Broker) -> int:
    """Lose the last 20 records, and put more bytes than these; return the offset of the cut."""
    master.kill()
    lost = lose_tail(master, 20)
    master.start()
    master.send_many(TOPIC, 9000, 60)
    return lost


def told(folder: Path) -> str:
    """Return the whole log of ``lakelog replicate``."""
    return (folder / "replicate.out").read_text()


def a_table_has_what_the_master_has(tmp_path: Path) -> None:
    """The tail was not durable on the copy, so no table has it."""
    path, lake = tmp_path / "copy", Table(tmp_path / "lake")
    late = ("--set", "rocketmq-ha.vouch=age", "--set", f"rocketmq-ha.vouch_age_ms={LONG_MS}")
    with broker(tmp_path / "broker") as master:
        master.send_many(TOPIC, 0, 100)
        with replicating(path, master, *lake.words):
            lake.await_rows(100)
        master.send_many(TOPIC, 100, 30)
        with replicating(path, master, *lake.words, *late):
            until(lambda: reached(path) == end_of(master))
            lost = grow(master)
            end = end_of(master)
            until(lambda: reached(path) == end)
            assert len(lake.offsets()) == 100
        assert f"differs from {lost} on, behind what counts as durable" in told(tmp_path)
        with replicating(path, master, *lake.words):
            lake.await_rows(170)
        assert lake.offsets() == offsets(path)
        with lakelog.open(path, mode="read") as store:
            assert numbers(store) == [*range(110), *range(9000, 9060)]
            assert sum(map(len, queued(store).values())) == 170
        master.kill()
        assert log_of(path, end) == log_of(master.store, end)


def a_master_is_not_followed(tmp_path: Path) -> None:
    """The tail was durable on the copy."""
    path, lake = tmp_path / "copy", Table(tmp_path / "lake")
    with broker(tmp_path / "broker") as master:
        master.send_many(TOPIC, 0, 100)
        with replicating(path, master, *lake.words):
            lake.await_rows(100)
        durable, rows = reached(path), lake.offsets()
        before = log_of(path, durable)
        lost = grow(master)
        command = [
            *(sys.executable, "-m", "lakelog", "replicate", str(path)),
            *("--from", str(master.slaves), "--set", f"segment_size_bytes={SEGMENT}"),
            *lake.words,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
        assert done.returncode == 4, done.stderr
        assert f"from {lost} to {durable}" in done.stderr
        assert log_of(path, durable) == before
        assert lake.offsets() == rows
        with lakelog.open(path, mode="read") as store:
            assert numbers(store) == list(range(100))


LOST_TAILS: Final = a_table_has_what_the_master_has, a_master_is_not_followed


def test_a_master_that_lost_its_tail(tmp_path: Path) -> None:
    sampling.chance().choice(LOST_TAILS)(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("lost_tail", LOST_TAILS)
def test_each_master_that_lost_its_tail(tmp_path: Path, lost_tail: Callable[[Path], None]) -> None:
    lost_tail(tmp_path)
