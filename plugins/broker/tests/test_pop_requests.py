"""Requests of clients that pop or pull: acknowledgements, peeks, notifications, and modes."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any, Final

import pytest

from lakelog_broker.broker import Broker
from lakelog_broker.codes import ResponseCode
from lakelog_broker.remoting.consuming import MAX_ACKNOWLEDGED
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.remoting.requests import RequestCode
from plugins.broker.tests.support import Client, at_a_broker, run_at_a_broker

_QUEUE: Final = {"topic": "orders", "queueId": "0", "consumerGroup": "group", "maxMsgNums": "32"}
_WANTED: Final = {**_QUEUE, "invisibleTime": "600000", "pollTime": "0", "initMode": "0"}
_PULL: Final = {**_QUEUE, "subscription": "*"}


async def fill(broker: Broker, client: Client) -> None:
    """Send three messages."""
    for number in range(3):
        assert (await client.send("orders", b"m%d" % number)).code == 0
    broker.store.wait_dispatched(timeout_ms=60_000)


async def pop_all(client: Client) -> RemotingCommand:
    popped = await client.call(RequestCode.POP_MESSAGE, **_WANTED)
    assert popped.fields["msgOffsetInfo"] == "0 0 0,1,2"
    return popped


def _bits(*places: int) -> str:
    number = sum(1 << place for place in places)
    return base64.b64encode(number.to_bytes((number.bit_length() + 7) // 8, "little")).decode()


async def _acknowledged(client: Client, popped: RemotingCommand, *bits: str) -> int:
    """Acknowledge messages in one request; the code of its response."""
    fields = popped.fields
    ack = {
        "c": "group",
        "t": "orders",
        "q": 0,
        "r": 0,
        "rq": 0,
        "so": int(fields["startOffsetInfo"].split(" ")[2]),
        "pt": int(fields["popTime"]),
        "it": int(fields["invisibleTime"]),
    }
    content = {"brokerName": "broker-a", "acks": [{**ack, "b": each} for each in bits]}
    return (await client.call(RequestCode.BATCH_ACK_MESSAGE, json.dumps(content).encode())).code


async def _committed(client: Client) -> int:
    place = {"consumerGroup": "group", "topic": "orders", "queueId": "0"}
    found = await client.call(RequestCode.QUERY_CONSUMER_OFFSET, **place)
    return int(found.fields["offset"])


@at_a_broker()
async def test_many_messages_are_acknowledged_at_once(broker: Broker, client: Client) -> None:
    """The committed offset is that of the first message without an acknowledgement."""
    await fill(broker, client)
    popped = await pop_all(client)
    assert await _acknowledged(client, popped, _bits(0, 2)) == 0
    assert await _committed(client) == 1
    assert await _acknowledged(client, popped, _bits(0, 1)) == 0
    assert await _committed(client) == 3


@pytest.mark.parametrize(
    "bits",
    [
        [base64.b64encode(b"\xff" * (10 << 10)).decode()],
        [_bits(*range(8 * 1024))] * (MAX_ACKNOWLEDGED // 8192 + 1),
        ["not base64!"],
    ],
    ids=["long", "many", "text"],
)
@at_a_broker()
async def test_acknowledgements_beyond_a_limit_are_refused_as_a_whole(
    broker: Broker, client: Client, bits: list[str]
) -> None:
    await fill(broker, client)
    popped = await pop_all(client)
    refused = await _acknowledged(client, popped, _bits(0), *bits)
    assert refused == ResponseCode.INVALID_PARAMETER
    assert await _acknowledged(client, popped, _bits(1)) == 0
    assert await _committed(client) == 0, "nothing of the refused request counts"


@at_a_broker()
async def test_a_peek_hands_nothing_out(broker: Broker, client: Client) -> None:
    await fill(broker, client)
    for _ in range(2):
        found = await client.call(RequestCode.PEEK_MESSAGE, **{**_WANTED, "maxMsgNums": "2"})
        assert found.code == 0
        assert [each in found.body for each in (b"m0", b"m1", b"m2")] == [True, True, False]
    assert await _acknowledged(client, await pop_all(client), _bits(0, 1, 2)) == 0
    found = await client.call(RequestCode.PEEK_MESSAGE, **_WANTED)
    assert (found.code, found.body) == (ResponseCode.PULL_NOT_FOUND, b"")


@at_a_broker()
async def test_a_notification_comes_with_a_message(broker: Broker, client: Client) -> None:
    """It says whether there is one now, or waits for the first."""
    await fill(broker, client)
    ask, other = RequestCode.NOTIFICATION, await Client.to(broker)
    assert (await client.call(ask, **_WANTED)).fields["hasMsg"] == "true"
    await pop_all(client)
    assert (await client.call(ask, **_WANTED)).fields["hasMsg"] == "false"
    waits = {**_WANTED, "pollTime": "600000"}
    waiting = asyncio.create_task(client.call(ask, **waits))
    await asyncio.sleep(0)
    assert (await other.send("orders", b"m3")).code == 0
    assert (await waiting).fields["hasMsg"] == "true"
    other.close()


@at_a_broker()
async def test_a_pull_commits_an_offset(broker: Broker, client: Client) -> None:
    """If its flag says so."""
    await fill(broker, client)
    pull = {**_PULL, "queueOffset": "2", "commitOffset": "2"}
    for flags, committed in (("4", 0), ("5", 2)):
        answer = await client.call(RequestCode.PULL_MESSAGE, **pull, sysFlag=flags)
        assert (answer.code, answer.fields["nextBeginOffset"]) == (0, "3")
        assert await _committed(client) == committed


@at_a_broker()
async def test_a_pull_at_the_end_waits_for_the_next_message(broker: Broker, client: Client) -> None:
    await fill(broker, client)
    other = await Client.to(broker)
    pull = {**_PULL, "queueOffset": "3", "sysFlag": "6", "suspendTimeoutMillis": "600000"}
    waiting = asyncio.create_task(client.call(RequestCode.PULL_MESSAGE, **pull))
    await asyncio.sleep(0)
    assert (await other.send("orders", b"m3")).code == 0
    async with asyncio.timeout(20):
        answer = await waiting
    assert (answer.code, answer.fields["nextBeginOffset"]) == (0, "4")
    assert b"m3" in answer.body
    other.close()


async def _mode(client: Client, group: str = "group") -> str:
    """The mode in which a member is told to consume; nothing for one that is not known."""
    asked = {"topic": "orders", "consumerGroup": group, "clientId": "c1"}
    found = await client.call(RequestCode.QUERY_ASSIGNMENT, json.dumps(asked).encode())
    assigned = json.loads(found.body)["messageQueueAssignments"]
    return str(assigned[0]["mode"]) if assigned else ""


def test_a_mode_survives_a_restart(tmp_path: Path) -> None:
    """In RocketMQ's file, of which the rest is kept; one that does not exist is refused."""
    file = tmp_path / "store" / "config" / "messageRequestMode.json"
    file.parent.mkdir(parents=True)
    (tmp_path / "store" / "commitlog").mkdir()
    theirs = {"topic": "orders", "consumerGroup": "other", "mode": "POP", "popShareQueueNum": 2}
    modes: dict[str, Any] = {"orders": {"other": theirs}}
    file.write_text(json.dumps({"messageRequestModeMap": modes, "more": 1}))
    wanted = {"topic": "orders", "consumerGroup": "group", "mode": "POP", "popShareQueueNum": 1}

    async def change(_broker: Broker, client: Client) -> None:
        await client.send("orders")
        assert await _mode(client) == ""
        groups = [{"groupName": "group"}, {"groupName": "other"}]
        await client.beat(clientID="c1", consumerDataSet=groups)
        assert (await _mode(client), await _mode(client, "other")) == ("PULL", "POP")
        set_mode = RequestCode.SET_MESSAGE_REQUEST_MODE
        assert (await client.call(set_mode, json.dumps(wanted).encode())).code == 0
        refused = await client.call(set_mode, json.dumps({**wanted, "mode": "PUSH"}).encode())
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert await _mode(client) == "POP"

    async def ask(_broker: Broker, client: Client) -> None:
        assert await _mode(client) == "POP"

    run_at_a_broker(tmp_path, change)
    run_at_a_broker(tmp_path, ask)
    modes["orders"]["group"] = wanted
    assert json.loads(file.read_text()) == {"messageRequestModeMap": modes, "more": 1}
