"""Requests of tools, and replies to producers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from lakelog_broker.broker import Broker
from lakelog_broker.codes import RequestCode, ResponseCode
from plugins.broker.tests.support import Client, served


def _with(folder: Path, work: Callable[[Broker, Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with served(folder) as broker:
            client = await Client.to(broker)
            try:
                await work(broker, client)
            finally:
                client.close()

    asyncio.run(main())


async def _content(client: Client, code: int, **fields: str) -> dict[str, Any]:
    found = await client.call(code, **fields)
    assert found.code == ResponseCode.SUCCESS, found.remark
    content: dict[str, Any] = json.loads(found.body)
    return content


def test_files_for_slaves(tmp_path: Path) -> None:
    """Each has its table and a version, also when there is no file yet."""

    async def work(broker: Broker, client: Client) -> None:
        tables = {
            RequestCode.GET_ALL_TOPIC_CONFIG: "topicConfigTable",
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "subscriptionGroupTable",
            RequestCode.GET_ALL_DELAY_OFFSET: "offsetTable",
            RequestCode.GET_ALL_CONSUMER_OFFSET: "offsetTable",
        }
        for code, name in tables.items():
            content = await _content(client, code)
            assert content[name] == {}
            assert "counter" in content["dataVersion"]
        await client.send("orders")
        broker.offsets.set("billing", "orders", 3, 7)
        topics = await _content(client, RequestCode.GET_ALL_TOPIC_CONFIG)
        assert topics["topicConfigTable"]["orders"]["writeQueueNums"] == 4
        offsets = await _content(client, RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert offsets["offsetTable"] == {"orders@billing": {"3": 7}}

    _with(tmp_path, work)


def test_state_and_settings(tmp_path: Path) -> None:
    """The end of the log grows by a message; settings are refused with their code."""

    async def work(broker: Broker, client: Client) -> None:
        before = (await _content(client, RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
        await client.send("orders")
        after = (await _content(client, RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
        assert int(after["commitLogMaxOffset"]) == broker.store.max_offset
        assert int(after["commitLogMaxOffset"]) > int(before["commitLogMaxOffset"])
        text = (await client.call(RequestCode.GET_BROKER_CONFIG)).body.decode()
        assert "brokerName=broker-a\n" in text
        refused = await client.call(RequestCode.UPDATE_BROKER_CONFIG, b"brokerName=b")
        assert refused.code == ResponseCode.NO_PERMISSION

    _with(tmp_path, work)


def test_offsets_of_groups(tmp_path: Path) -> None:
    """Statistics, a reset to the beginning and the end, a clone, and the end of a group."""

    async def work(broker: Broker, client: Client) -> None:
        for _ in range(3):
            await client.send("orders")
        broker.store.wait_dispatched()
        broker.offsets.set("billing", "orders", 0, 2)
        found = await client.call(RequestCode.GET_CONSUME_STATS, consumerGroup="billing")
        assert b'"brokerOffset": 3, "consumerOffset": 2' in found.body
        reset = {"topic": "orders", "group": "billing", "isForce": "true"}
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        for time_ms, offset in (("0", 0), ("-1", 3)):
            answer = await client.call(code, timestamp=time_ms, **reset)
            assert answer.code == ResponseCode.SUCCESS
            assert broker.offsets.get("billing", "orders", 0) == offset
        await client.call(code, timestamp="0", **reset)
        await client.call(code, timestamp="-1", **{**reset, "isForce": "false"})
        assert broker.offsets.get("billing", "orders", 0) == 0
        broker.offsets.set("billing", "orders", 0, 1)
        clone = {"srcGroup": "billing", "destGroup": "copy", "topic": "orders"}
        await client.call(RequestCode.CLONE_GROUP_OFFSET, **clone)
        assert broker.offsets.get("copy", "orders", 0) == 1
        groups = await _content(client, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="orders")
        assert groups == {"groupList": ["billing", "copy"]}
        topics = await _content(client, RequestCode.QUERY_TOPICS_BY_CONSUMER, group="copy")
        assert topics == {"topicList": ["orders"]}
        gone = {"groupName": "copy", "cleanOffset": "true"}
        await client.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, **gone)
        assert broker.offsets.of_group("copy") == {}

    _with(tmp_path, work)


def test_connections_and_settings_of_groups(tmp_path: Path) -> None:
    """Members are listed while they are connected."""

    async def work(broker: Broker, client: Client) -> None:
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        absent = await client.call(code, consumerGroup="billing")
        assert absent.code == ResponseCode.CONSUMER_NOT_ONLINE
        subscription = {"topic": "orders", "subString": "*"}
        beat = {
            "clientID": "c1",
            "consumerDataSet": [{"groupName": "billing", "subscriptionDataSet": [subscription]}],
            "producerDataSet": [{"groupName": "shop"}],
        }
        await client.call(RequestCode.HEART_BEAT, json.dumps(beat).encode())
        found = await _content(client, code, consumerGroup="billing")
        assert [each["clientId"] for each in found["connectionSet"]] == ["c1"]
        assert found["subscriptionTable"]["orders"]["subString"] == "*"
        code = RequestCode.GET_PRODUCER_CONNECTION_LIST
        assert len((await _content(client, code, producerGroup="shop"))["connectionSet"]) == 1
        assert (await client.call(code, producerGroup="none")).code == ResponseCode.SYSTEM_ERROR
        body = json.dumps({"groupName": "billing", "retryMaxTimes": 3}).encode()
        await client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
        config = await _content(client, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="billing")
        assert config["retryMaxTimes"] == broker.topics.retry_limit("billing") == 3

    _with(tmp_path, work)


def test_topic_statistics_have_objects_as_keys(tmp_path: Path) -> None:
    """As fastjson writes a map of message queues."""

    async def work(_broker: Broker, client: Client) -> None:
        await client.send("orders")
        body = (await client.call(RequestCode.GET_TOPIC_STATS_INFO, topic="orders")).body
        assert body.startswith(b'{"offsetTable":{{"brokerName": "broker-a", "queueId": 0, ')

    _with(tmp_path, work)


def test_replies_reach_the_producer_that_asked(tmp_path: Path) -> None:
    """A reply is stored and pushed; one to a client that is gone is an error, and not stored."""

    async def work(broker: Broker, client: Client) -> None:
        asking = await Client.to(broker)
        beat = {"clientID": "asking", "producerDataSet": [{"groupName": "shop"}]}
        await asking.call(RequestCode.HEART_BEAT, json.dumps(beat).encode())
        topic = broker.settings.reply_topic
        fields = {"a": "g", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1"}
        to = "CORRELATION_ID\x01id7\x02REPLY_TO_CLIENT\x01"
        code = RequestCode.SEND_REPLY_MESSAGE_V2
        sent = await client.call(code, b"answer", **fields, i=f"{to}asking")
        assert sent.code == ResponseCode.SUCCESS
        pushed = await asking.receive()
        assert pushed.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        assert pushed.body == b"answer"
        assert "CORRELATION_ID\x01id7\x02" in pushed.fields["properties"]
        end = broker.store.max_offset
        lost = await client.call(code, b"answer", **fields, i=f"{to}gone")
        assert lost.code == ResponseCode.SYSTEM_ERROR
        assert broker.store.max_offset == end
        asking.close()

    _with(tmp_path, work)
