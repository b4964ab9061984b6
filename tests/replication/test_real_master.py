"""A replica of a real broker has the same bytes, after kills of both, and after a lost tail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog_replication.remoting import BrokerRefused, broker_config, call, runtime_info
from lakelog_replication.replica.receiver import consumer_offsets
from lakelog_rocketmq.fastjson import parse_object
from plugins.replication.tests.replica.copies import log_of
from tests.oracle.java import Oracle
from tests.replication import dumps
from tests.replication.masterbroker import SEGMENT, Broker, broker, eventually
from tests.replication.repeating import Repeating
from tests.replication.tables import Table, end_of, offsets, replicating
from tests.support import sampling

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

TOPIC: Final = "Copied"
BROKER_FILES: Final[dict[str, Any]] = {
    "segment_size_bytes": SEGMENT,
    "consume_queue": {"file_entries": 30_000},
    "hash_index": {"slots": 100_000, "entries": 400_000},
}
"""The file sizes of these tests' brokers, which refuse files of other sizes."""
CONFIGS: Final = {"topics": "topicConfigTable", "subscriptionGroup": "subscriptionGroupTable"}
REQUESTS: Final = {"topics": 21, "subscriptionGroup": 201}


@contextmanager
def replica(path: Path, master: Broker, **more: Any) -> Iterator[lakelog.Store]:
    """Open a replica with short intervals in this process."""
    section = {
        "role": "slave",
        "master": str(master.slaves),
        "vouch": "received",
        "reconnect_interval_ms": 100,
        "sync_interval_ms": 20,
        **more,
    }
    given: dict[str, Any] = {"replicator": "rocketmq-ha", "rocketmq_ha": section}
    with lakelog.open(path, mode="replica", **given, **BROKER_FILES) as store:
        yield store


def end_of_log(master: Broker) -> int:
    """Return the end offset of the master's log.

    A broker may refuse the first request after its start, because its statistics are empty.
    """
    found: list[int] = []

    def is_told() -> bool:
        with suppress(BrokerRefused):
            found.append(runtime_info(master.client).end)
        return bool(found)

    eventually(is_told)
    return found[0]


def numbers(store: lakelog.Store) -> list[int]:
    return [int.from_bytes(each.body[:8]) for each in store.scan() if each.topic == TOPIC]


def queued(store: lakelog.Store) -> dict[tuple[str, int], list[int]]:
    """Return the physical offsets of each queue of the tests' topic."""
    places = [(TOPIC, each.queue_id) for each in store.queues(TOPIC)]
    return {place: [each.physical_offset for each in store.read(*place)] for place in places}


def test_a_copy_has_the_bytes_queues_and_keys_of_its_master(oracle: Oracle, tmp_path: Path) -> None:
    with broker(tmp_path / "broker") as master:
        master.send_many(TOPIC, 0, 300, size=5000)
        with replica(tmp_path / "copy", master, learner=False) as store:
            eventually(lambda: store.max_offset == end_of_log(master))
            master.send_many(TOPIC, 300, 40)
            end = end_of_log(master)
            eventually(lambda: store.max_offset == end)
            assert end > SEGMENT
            assert store.wait_dispatched()
            eventually(lambda: store.flushed_offset == end)
            assert numbers(store) == list(range(340))
            assert [int.from_bytes(each.body[:8]) for each in store.query(TOPIC, "k320")] == [320]
            copied = queued(store)
            assert broker_config(master.client)["mappedFileSizeCommitLog"] == str(SEGMENT)
        master.stop()  # the index of a killed broker lacks keys
        assert log_of(tmp_path / "copy", end) == log_of(master.store, end)
        rows = dumps.contents(oracle, tmp_path / "copy", dumps.OF_BROKER)
        dumps.check_equal(rows, dumps.contents(oracle, master.store, dumps.OF_BROKER))
        with lakelog.open(
            master.store, mode="read", segment_size_bytes=SEGMENT, flush="none"
        ) as original:
            assert queued(original) == copied


def test_a_promoted_replica_has_what_its_master_synced_its_topics_and_groups(
    tmp_path: Path,
) -> None:
    copy = tmp_path / "promoted" / "store"
    with broker(tmp_path / "broker", flushDiskType="SYNC_FLUSH") as master:
        master.create_topic("Planned", queues=3)
        master.send_many("Planned", 0, 30)
        master.commit("readers", "Planned", 1, 7)
        asked = {"vouch": "flushed", "broker": str(master.client), "groups_interval_ms": 50}
        with replica(copy, master, **asked) as store:
            eventually(lambda: store.flushed_offset == end_of_log(master))
            master.send_many(TOPIC, 30, 50)
            end = end_of_log(master)
            eventually(lambda: store.flushed_offset == end)
            assert len(numbers(store)) == 50
            eventually(lambda: store.groups().get("readers") == {"Planned": {1: 7}})
            master.commit("readers", "Planned", 2, 3)
            wanted = configs(master)
            eventually(lambda: store.groups()["readers"]["Planned"] == {1: 7, 2: 3})
            eventually(lambda: configs_in(copy) == wanted)
    lakelog.promote(copy, **BROKER_FILES)
    with broker(tmp_path / "promoted") as promoted:
        assert end_of_log(promoted) >= end
        found = configs(promoted)
        assert found["topics"]["Planned"] == wanted["topics"]["Planned"]
        assert found["topics"]["Planned"]["writeQueueNums"] == 3
        assert found["subscriptionGroup"]["readers"] == wanted["subscriptionGroup"]["readers"]
        assert consumer_offsets(promoted.client)["Planned@readers"] == {1: 7, 2: 3}
        assert promoted.send("Planned", b"after") >= end


def configs(master: Broker) -> dict[str, dict[str, Any]]:
    return {
        name: parse_object(call(master.client, REQUESTS[name]).body)[table]
        for name, table in CONFIGS.items()
    }


def configs_in(copy: Path) -> dict[str, dict[str, Any]]:
    files = {name: copy / "config" / f"{name}.json" for name in CONFIGS}
    return {
        name: parse_object(path.read_bytes())[CONFIGS[name]]
        for name, path in files.items()
        if path.exists()
    }


def program(path: Path, master: Broker, *more: str) -> partial[Any]:
    words = ("--from", str(master.slaves), "--broker", str(master.client), *more)
    return partial(replicating, path, *words)


def progress(path: Path, sending: Repeating[int], count: int) -> None:
    """Wait until the copy has grown, and ``count`` further messages are acknowledged."""
    before = end_of(path)
    eventually(lambda: end_of(path) > before)
    sending.more(count)


@pytest.mark.parametrize(
    "rounds", [1, pytest.param(10, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
def test_kills_of_either_side_leave_the_same_bytes_and_rows(
    oracle: Oracle, tmp_path: Path, rounds: int
) -> None:
    chance, path, lake = sampling.chance(), tmp_path / "copy", Table(tmp_path / "lake")
    with broker(tmp_path / "broker") as master:

        def send(number: int) -> int | None:
            found = master.send_many(TOPIC, number, 1)
            return found[0] if found else None

        with program(path, master, *lake.words)("--vouch", "received") as kill_copy:
            with Repeating(send, pause_s=0.01) as sending:  # what comes back has to catch up
                for _ in range(rounds):
                    for kill in (kill_copy, master.kill):
                        progress(path, sending, chance.randrange(100))
                        kill()
                    master.start()
            end = end_of_log(master)
            eventually(lambda: end_of(path) == end)
            lake.wait_for(lambda: lake.offsets() == offsets(path))
        master.kill()
        assert log_of(path, end) == log_of(master.store, end)
        copied = dumps.contents(oracle, path, dumps.OF_LAKELOG)
        original = dumps.contents(oracle, master.store, dumps.OF_BROKER)
        dumps.check_equal(copied, original, was_killed=True)
    with lakelog.open(path, mode="read") as store:
        found = numbers(store)
        assert set(sending.found) <= set(found)
        assert sum(map(len, queued(store).values())) == len(found)


def grow_otherwise(master: Broker) -> int:
    """Zero the last 20 records in the master's files, and put more bytes; return their offset."""
    master.kill()
    with lakelog.open(master.store, mode="read", segment_size_bytes=SEGMENT, flush="none") as store:
        start = [each.physical_offset for each in store.scan()][-20]
    segment = master.store / "commitlog" / f"{start - start % SEGMENT:020d}"
    with segment.open("r+b") as file:
        file.seek(start % SEGMENT)
        file.write(bytes(SEGMENT - start % SEGMENT))
    master.start()
    master.send_many(TOPIC, 9000, 60)
    return start


def a_tail_that_was_not_durable(path: Path, master: Broker, lake: Table, rows: int) -> None:
    """No table has it, and the copy follows the master."""
    run = program(path, master, *lake.words)
    master.send_many(TOPIC, 100, 30)
    late = "rocketmq-ha.vouch_age_ms=3600000"
    with run("--vouch", "age", "--set", late):
        eventually(lambda: end_of(path) == end_of_log(master))
        lost = grow_otherwise(master)
        end = end_of_log(master)
        eventually(lambda: end_of(path) == end)
        assert len(lake.offsets()) == rows
    said = (path.parent / "out").read_text()
    assert f"differs from {lost} on, behind what counts as durable" in said
    with run("--vouch", "received"):
        lake.await_rows(rows + 70)
    assert lake.offsets() == offsets(path)
    with lakelog.open(path, mode="read") as store:
        assert numbers(store) == [*range(rows + 10), *range(9000, 9060)]
        assert sum(map(len, queued(store).values())) == rows + 70
    master.kill()
    assert log_of(path, end) == log_of(master.store, end)


def a_tail_that_was_durable(path: Path, master: Broker, lake: Table, rows: int) -> None:
    """The master is not followed."""
    durable, landed = end_of(path), lake.offsets()
    before = log_of(path, durable)
    lost = grow_otherwise(master)
    with program(path, master, *lake.words)(code=4):
        eventually(lambda: f"from {lost} to {durable}" in (path.parent / "out").read_text())
    assert log_of(path, durable) == before
    assert lake.offsets() == landed
    with lakelog.open(path, mode="read") as store:
        assert numbers(store) == list(range(rows))


@pytest.mark.sample(1)
@pytest.mark.parametrize("tail", [a_tail_that_was_not_durable, a_tail_that_was_durable])
def test_a_master_that_lost_its_tail(tmp_path: Path, tail: Callable[..., None]) -> None:
    path, lake = tmp_path / "copy", Table(tmp_path / "lake")
    with broker(tmp_path / "broker") as master:
        master.send_many(TOPIC, 0, 100)
        with program(path, master, *lake.words)("--vouch", "received"):
            lake.await_rows(100)
        tail(path, master, lake, rows=100)
