"""Real masters of one cluster, found by a real name server, land in one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog_replication.remoting import BrokerRefused
from plugins.replication.tests.multisource.programs import Copying, end_of, program
from tests.replication.masterbroker import (
    SEGMENT,
    Broker,
    addresses,
    broker,
    eventually,
    name_server,
)
from tests.replication.repeating import Repeating
from tests.replication.tables import Table
from tests.replication.test_real_master import TOPIC, end_of_log
from tests.support import sampling

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]


def sender(master: Broker) -> Repeating[int]:
    """Return what sends to a master, and finds the physical offsets of acknowledged messages."""

    def send(number: int) -> int | None:
        with suppress(BrokerRefused):  # a failed send is not repeated
            return master.send(TOPIC, number.to_bytes(8) * 20, number % 4)
        return None

    return Repeating(send, pause_s=0.01)


def rows_of(lake: Table) -> Counter[tuple[Any, ...]]:
    """Return the number of rows of each message, by store and physical offset."""
    rows = lake.rows("store", "physical_offset", "topic")
    return Counter((store, offset) for store, offset, topic in rows if topic == TOPIC)


def offsets(store: Path) -> list[int]:
    """Return the physical offsets of the topic's messages in the log of a stopped broker."""
    with lakelog.open(store, mode="read", segment_size_bytes=SEGMENT, flush="none") as log:
        return [each.physical_offset for each in log.scan() if each.topic == TOPIC]


def copied(copying: Copying, masters: dict[str, Broker], lake: Table) -> None:
    """Wait until all messages of the masters are copied and landed."""
    ends = {name: end_of_log(each) for name, each in masters.items()}
    eventually(lambda: all(end_of(copying.folder / name) >= end for name, end in ends.items()))
    last = [(name, _last_offset(copying.folder / name, end)) for name, end in ends.items()]
    lake.wait_for(lambda: rows_of(lake).keys() >= set(last))


def _last_offset(copy: Path, end: int) -> int:
    with lakelog.open(copy, mode="read") as log:
        return max(each.physical_offset for each in log.scan(0, end) if each.topic == TOPIC)


def every_acknowledged_message_lands_once(tmp_path: Path, rounds: int = 1) -> None:
    chance, folder = sampling.chance(), tmp_path / "copies"
    lake = Table(tmp_path / "lake")
    with ExitStack() as stack:
        server = stack.enter_context(name_server(tmp_path / "names"))

        def master(name: str) -> Broker:
            given = {"brokerName": name, "namesrvAddr": str(server)}
            return stack.enter_context(broker(tmp_path / name, **given))

        masters = {"one": master("one")}
        words = ["--from-name-server", str(server), "--to", lake.to, *lake.named]
        copying = stack.enter_context(program(folder, "replicate", *words, segment_size_bytes=None))
        senders = {"one": sender(masters["one"])}
        with ExitStack() as sending:
            sending.enter_context(senders["one"])
            senders["one"].more(20)
            masters["two"] = master("two")  # added while the program runs
            senders["two"] = sender(masters["two"])
            sending.enter_context(senders["two"])
            for number in range(rounds):
                for name, each in masters.items():
                    senders[name].more(10 + chance.randrange(100))
                    each.kill()
                if number % 2 == 0:
                    # other ports, as on another machine
                    masters["two"].client, masters["two"].slaves = addresses()
                for each in masters.values():
                    each.start()
            for each_sender in senders.values():
                each_sender.more(50)
        copied(copying, masters, lake)
        eventually(lambda: copying.row("two").get("health") == "ok")
        assert copying.stop() == 0, copying.said()
    rows = rows_of(lake)
    assert set(rows.values()) == {1}
    for name, sent in senders.items():
        assert {(name, each) for each in sent.found} <= set(rows)
        assert [(name, each) for each in offsets(masters[name].store)] == sorted(
            each for each in rows if each[0] == name
        )


def a_master_that_is_gone_keeps_its_copy_and_lands_on(tmp_path: Path) -> None:
    lake, folder = Table(tmp_path / "lake"), tmp_path / "copies"
    with name_server(tmp_path / "names") as server:
        given = {"namesrvAddr": str(server)}
        words = ["--from-name-server", str(server)]
        with (
            broker(tmp_path / "one", brokerName="one", **given) as one,
            broker(tmp_path / "two", brokerName="two", **given) as two,
        ):
            for each in (one, two):
                each.send_many(TOPIC, 0, 50)
            with program(folder, "replicate", *words, segment_size_bytes=None) as copying:
                ends = {"one": end_of_log(one), "two": end_of_log(two)}
                eventually(lambda: all(end_of(folder / name) >= end for name, end in ends.items()))
                two.kill()
                eventually(lambda: "two is listed no longer" in copying.said())
                one.send_many(TOPIC, 50, 50)
                eventually(lambda: end_of(folder / "one") >= end_of_log(one))
                assert copying.stop() == 0, copying.said()
            words += ["--to", lake.to, *lake.named]
            with program(folder, "replicate", *words, segment_size_bytes=None) as copying:
                lake.await_rows(150)
                assert copying.stop() == 0, copying.said()
    assert Counter(name for name, _ in rows_of(lake)) == {"one": 100, "two": 50}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "scenario",
    [
        every_acknowledged_message_lands_once,
        a_master_that_is_gone_keeps_its_copy_and_lands_on,
    ],
)
def test_masters_of_a_cluster(tmp_path: Path, scenario: Callable[[Path], None]) -> None:
    scenario(tmp_path)


@pytest.mark.slow
def test_every_acknowledged_message_lands_once_after_many_kills(tmp_path: Path) -> None:
    every_acknowledged_message_lands_once(tmp_path, rounds=6)
