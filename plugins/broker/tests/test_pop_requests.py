"""Requests of clients that pop: acknowledgements of many messages, peeks, and notifications."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from lakelog_broker.codes import RequestCode, ResponseCode
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.remoting.handlers.popping import MAX_ACKNOWLEDGED
from plugins.broker.tests.support import Client, served

_WANTED: Final = {
    "topic": "orders",
    "queueId": "0",
    "consumerGroup": "group",
    "maxMsgNums": "32",
    "invisibleTime": "600000",
    "pollTime": "0",
    "initMode": "0",
}


def _with_client(folder: Path, work: Callable[[Client, Client], Awaitable[None]]) -> None:
    """Run ``work`` with two clients of a broker that has three messages in ``orders``."""

    async def main() -> None:
        async with served(folder) as broker:
            client, other = await Client.to(broker), await Client.to(broker)
            for number in range(3):
                assert (await client.send("orders", b"m%d" % number)).code == 0
            broker.store.wait_dispatched(timeout_ms=60_000)
            await work(client, other)
            client.close()
            other.close()

    asyncio.run(main())


def _bits(*places: int) -> str:
    number = sum(1 << place for place in places)
    return base64.b64encode(number.to_bytes((number.bit_length() + 7) // 8, "little")).decode()


def _acks(popped: RemotingCommand, bits: str) -> bytes:
    fields = popped.fields
    start = int(fields["startOffsetInfo"].split(" ")[2])
    ack = {
        "c": "group",
        "t": "orders",
        "q": 0,
        "r": 0,
        "rq": 0,
        "so": start,
        "b": bits,
        "pt": int(fields["popTime"]),
        "it": int(fields["invisibleTime"]),
    }
    return json.dumps({"brokerName": "broker-a", "acks": [ack]}).encode()


async def _committed(client: Client) -> int:
    place = {"consumerGroup": "group", "topic": "orders", "queueId": "0"}
    found = await client.call(RequestCode.QUERY_CONSUMER_OFFSET, **place)
    return int(found.fields["offset"])


def test_many_messages_are_acknowledged_at_once(tmp_path: Path) -> None:
    """The committed offset is that of the first message without an acknowledgement."""

    async def work(client: Client, _other: Client) -> None:
        popped = await client.call(RequestCode.POP_MESSAGE, **_WANTED)
        assert popped.fields["msgOffsetInfo"] == "0 0 0,1,2"
        ack = RequestCode.BATCH_ACK_MESSAGE
        assert (await client.call(ack, _acks(popped, _bits(0, 2)))).code == 0
        assert await _committed(client) == 1
        assert (await client.call(ack, _acks(popped, _bits(0, 1)))).code == 0
        assert await _committed(client) == 3

    _with_client(tmp_path, work)


_TOO_MANY: Final = (
    [base64.b64encode(b"\xff" * (10 << 10)).decode()],
    [_bits(*range(8 * 1024))] * (MAX_ACKNOWLEDGED // 8192 + 1),
    ["not base64!"],
)


@pytest.mark.parametrize("bits", _TOO_MANY, ids=["long", "many", "text"])
def test_acknowledgements_beyond_a_limit_are_refused_as_a_whole(
    tmp_path: Path, bits: list[str]
) -> None:
    async def work(client: Client, _other: Client) -> None:
        popped = await client.call(RequestCode.POP_MESSAGE, **_WANTED)
        acks: list[Any] = []
        for each in ["AQ==", *bits]:
            acks += json.loads(_acks(popped, each))["acks"]
        body = json.dumps({"acks": acks}).encode()
        refused = await client.call(RequestCode.BATCH_ACK_MESSAGE, body)
        assert refused.code == ResponseCode.INVALID_PARAMETER
        ack = RequestCode.BATCH_ACK_MESSAGE
        assert (await client.call(ack, _acks(popped, _bits(1)))).code == 0
        # The first is still out: nothing of the refused request counts.
        assert (await client.call(ack, _acks(popped, _bits(0)))).code == 0
        assert await _committed(client) == 2

    _with_client(tmp_path, work)


def test_a_peek_hands_nothing_out(tmp_path: Path) -> None:
    async def work(client: Client, _other: Client) -> None:
        for _ in range(2):
            found = await client.call(RequestCode.PEEK_MESSAGE, **{**_WANTED, "maxMsgNums": "2"})
            assert found.code == 0
            assert b"m0" in found.body
            assert b"m1" in found.body
            assert b"m2" not in found.body
        popped = await client.call(RequestCode.POP_MESSAGE, **_WANTED)
        assert popped.fields["msgOffsetInfo"] == "0 0 0,1,2"
        everything = _acks(popped, _bits(0, 1, 2))
        assert (await client.call(RequestCode.BATCH_ACK_MESSAGE, everything)).code == 0
        found = await client.call(RequestCode.PEEK_MESSAGE, **_WANTED)
        assert (found.code, found.body) == (ResponseCode.PULL_NOT_FOUND, b"")

    _with_client(tmp_path, work)


def test_a_notification_comes_with_a_message(tmp_path: Path) -> None:
    """It says whether there is one now, or waits for the first."""

    async def work(client: Client, other: Client) -> None:
        ask = RequestCode.NOTIFICATION
        assert (await client.call(ask, **_WANTED)).fields["hasMsg"] == "true"
        await client.call(RequestCode.POP_MESSAGE, **_WANTED)
        assert (await client.call(ask, **_WANTED)).fields["hasMsg"] == "false"
        waits = {**_WANTED, "pollTime": "600000"}
        waiting = asyncio.create_task(client.call(ask, **waits))
        await asyncio.sleep(0)
        assert (await other.send("orders", b"m3")).code == 0
        assert (await waiting).fields["hasMsg"] == "true"

    _with_client(tmp_path, work)


_PULL: Final = {
    "topic": "orders",
    "queueId": "0",
    "consumerGroup": "group",
    "maxMsgNums": "32",
    "subscription": "*",
}


def test_a_pull_commits_an_offset(tmp_path: Path) -> None:
    """If its flag says so."""

    async def work(client: Client, _other: Client) -> None:
        pull = {**_PULL, "queueOffset": "2", "commitOffset": "2"}
        for flags, committed in (("4", 0), ("5", 2)):
            answer = await client.call(RequestCode.PULL_MESSAGE, **pull, sysFlag=flags)
            assert (answer.code, answer.fields["nextBeginOffset"]) == (0, "3")
            assert await _committed(client) == committed

    _with_client(tmp_path, work)


def test_a_pull_at_the_end_waits_for_the_next_message(tmp_path: Path) -> None:
    async def work(client: Client, other: Client) -> None:
        pull = {**_PULL, "queueOffset": "3", "sysFlag": "6", "suspendTimeoutMillis": "600000"}
        waiting = asyncio.create_task(client.call(RequestCode.PULL_MESSAGE, **pull))
        await asyncio.sleep(0)
        assert (await other.send("orders", b"m3")).code == 0
        async with asyncio.timeout(20):
            answer = await waiting
        assert (answer.code, answer.fields["nextBeginOffset"]) == (0, "4")
        assert b"m3" in answer.body

    _with_client(tmp_path, work)


async def _mode(client: Client) -> str:
    asked = {"topic": "orders", "consumerGroup": "group", "clientId": "c1"}
    found = await client.call(RequestCode.QUERY_ASSIGNMENT, json.dumps(asked).encode())
    return str(json.loads(found.body)["messageQueueAssignments"][0]["mode"])


def test_a_mode_survives_a_restart(tmp_path: Path) -> None:
    """It lies in RocketMQ's file; one that does not exist is refused."""
    beat = {"clientID": "c1", "consumerDataSet": [{"groupName": "group"}]}
    wanted = {"topic": "orders", "consumerGroup": "group", "mode": "POP", "popShareQueueNum": 1}

    async def change(client: Client, _other: Client) -> None:
        await client.call(RequestCode.HEART_BEAT, json.dumps(beat).encode())
        assert await _mode(client) == "PULL"
        set_mode = RequestCode.SET_MESSAGE_REQUEST_MODE
        assert (await client.call(set_mode, json.dumps(wanted).encode())).code == 0
        refused = await client.call(set_mode, json.dumps({**wanted, "mode": "PUSH"}).encode())
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert await _mode(client) == "POP"

    async def ask(client: Client, _other: Client) -> None:
        assert await _mode(client) == "POP"

    _with_client(tmp_path, change)
    _with_client(tmp_path, ask)
    content = json.loads((tmp_path / "store/config/messageRequestMode.json").read_text())
    assert content == {"messageRequestModeMap": {"orders": {"group": wanted}}}
