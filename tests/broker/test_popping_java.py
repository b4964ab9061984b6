"""RocketMQ's Java push consumer in pop mode, against lakelog and a real broker."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

import lakelog
from lakelog_broker.settings import BrokerSettings
from lakelog_replication.remoting import BrokerRefused, Response, call
from lakelog_replication.settings import Address
from plugins.broker.tests.serving import served
from tests.broker.later import java, set_pop_mode
from tests.replication.masterbroker import (
    CREATE_GROUP,
    broker,
    create_topic,
    eventually,
    has_route,
    name_server,
)

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

TOPIC: Final = "popped"
GROUP: Final = "popping"
GET_MAX_OFFSET: Final = 30
QUERY_OFFSET: Final = 14
POP: Final = 200050
ACK: Final = 200051
RETRIES: Final = f"%RETRY%{GROUP}_{TOPIC}"
EXPECTED: Final = ["= done: 40", f"= attempts: [{TOPIC} 0, {TOPIC} 1]"]


@contextmanager
def pop_member(names: Address, home: Path) -> Iterator[list[str]]:
    command = java("PopMember", str(names), TOPIC, GROUP, home=home)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            found: list[str] = []
            for line in process.stdout:
                found += [line.strip()] if line.startswith("= ") else []
                if len(found) == len(EXPECTED):
                    break
            yield found
        finally:
            process.kill()


def configure(address: Address) -> None:
    call(address, CREATE_GROUP, body=json.dumps({"groupName": GROUP}).encode())
    create_topic(address, TOPIC, 4)
    set_pop_mode(address, TOPIC, GROUP)


def test_a_push_consumer_pops_from_lakelog(tmp_path: Path) -> None:
    with (
        lakelog.open(tmp_path / "store", mode="exclusive") as store,
        served(store, BrokerSettings(port=0)) as running,
    ):
        address = Address.parse(running.address)
        configure(address)

        def committed() -> int:
            return sum(running.offsets.get(GROUP, TOPIC, each) or 0 for each in range(4))

        with pop_member(address, tmp_path) as lines:
            assert lines == EXPECTED
            eventually(lambda: committed() == 40)


@pytest.mark.slow
def test_a_push_consumer_pops_from_rocketmq(tmp_path: Path) -> None:
    with (
        name_server(tmp_path / "names") as names,
        broker(tmp_path / "home", namesrvAddr=names, timerWheelEnable="true") as real,
    ):
        configure(real.client)

        eventually(lambda: has_route(names, TOPIC))
        with pop_member(names, tmp_path) as lines:
            assert lines == EXPECTED


def pop(address: Address, invisible_ms: int, group: str = GROUP, topic: str = TOPIC) -> Response:
    """Pop at most eight messages of the first queue."""
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "maxMsgNums": "8",
        "invisibleTime": str(invisible_ms),
        "pollTime": "1000",
        "bornTime": str(time.time_ns() // 1_000_000),
        "initMode": "0",
        "expType": "TAG",
        "exp": "*",
        "order": "false",
    }
    return call(address, POP, fields)


def revived(address: Address, queue_id: str) -> int:
    """Return the last record of the revive topic that RocketMQ has settled; -1 without one."""
    fields = {
        "consumerGroup": "CID_RMQ_SYS_REVIVE_GROUP",
        "topic": "rmq_sys_REVIVE_LOG_Tests",
        "queueId": queue_id,
    }
    try:
        return int(call(address, QUERY_OFFSET, fields).fields["offset"])
    except BrokerRefused:
        return -1


def test_what_rocketmq_handed_out_is_handed_out_again(tmp_path: Path) -> None:
    """Messages behind the group's offset without an acknowledgement come again, exactly once."""
    with broker(tmp_path / "home", timerWheelEnable="true") as real:
        configure(real.client)
        for number in range(4):
            real.send(TOPIC, b"%d" % number)
        popped = pop(real.client, 10_000)
        start, *_ = popped.fields["startOffsetInfo"].split(";")
        handle = " ".join(
            [
                start.split(" ")[2],
                *(popped.fields["popTime"], popped.fields["invisibleTime"]),
                *(popped.fields["reviveQid"], "0", "broker-a", "0", "1"),
            ]
        )
        acknowledgement = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "offset": "1"}
        call(real.client, ACK, {**acknowledgement, "extraInfo": handle})
        real.stop()
        with lakelog.open(real.store, mode="exclusive") as store:
            assert store.groups()[GROUP][TOPIC][0] == 4
            with served(store, BrokerSettings(port=0)):
                store.wait_dispatched(timeout_ms=60_000)
                again = store.get(RETRIES, 0, 0).messages
                assert [each.body for each in again] == [b"0", b"2", b"3"]
                assert {each.reconsume_times for each in again} == {1}
        real.start()
        queue_id = popped.fields["reviveQid"]
        eventually(lambda: revived(real.client, queue_id) >= 0)
        end = call(real.client, GET_MAX_OFFSET, {"topic": RETRIES, "queueId": "0"})
        assert end.fields["offset"] == "3"


def test_rocketmq_hands_out_what_waits_in_a_long_retry_topic(tmp_path: Path) -> None:
    """Its name has more than the 127 bytes that a client may give."""
    group, topic = "g" * 60, "t" * 100
    retries = f"%RETRY%{group}_{topic}"
    with broker(tmp_path / "home", timerWheelEnable="true") as real:
        create_topic(real.client, topic, 1)
        real.send(topic, b"first")
        real.send(topic, b"second")
        real.stop()
        with (
            lakelog.open(real.store, mode="exclusive") as store,
            served(store, BrokerSettings(port=0)) as running,
        ):
            store.wait_dispatched(timeout_ms=60_000)
            address = Address.parse(running.address)
            popped = pop(address, 500, group, topic)
            times = popped.fields["popTime"], popped.fields["invisibleTime"]
            handle = " ".join(["0", *times, "0", "0", running.settings.name, "0", "1"])
            of = {"consumerGroup": group, "topic": topic, "queueId": "0", "offset": "1"}
            call(address, ACK, {**of, "extraInfo": handle})

            def is_moved() -> bool:
                with suppress(BrokerRefused):  # nothing is visible
                    pop(address, 60_000, group, topic)
                return store.queue_bounds(retries, 0) is not None

            eventually(is_moved)
        real.start()

        def body() -> bytes:
            with suppress(BrokerRefused):
                return pop(real.client, 60_000, group, topic).body
            return b""

        eventually(lambda: b"first" in body())
