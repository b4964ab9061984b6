"""Requests of tools, and replies to producers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from lakelog_broker.broker import Broker
from lakelog_broker.codes import RequestCode, ResponseCode
from lakelog_broker.remoting.frame import RemotingCommand, encode_frame
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


def test_figures_count_from_the_start_of_the_broker(tmp_path: Path) -> None:
    """Not from the first request for them, whose handlers are imported by then."""

    async def work(broker: Broker, client: Client) -> None:
        await client.send("orders")
        broker.store.wait_dispatched()
        table = (await _content(client, RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
        assert int(table["bootTimestamp"]) == broker.started_ms
        assert int(table["putMessageSizeTotal"]) == broker.store.max_offset > 0

    _with(tmp_path, work)


def test_figures_of_timers(tmp_path: Path) -> None:
    """A message that waits is counted, and so is its arrival."""

    async def work(broker: Broker, client: Client) -> None:
        due_ms = time.time_ns() // 1_000_000 + 3_600_000
        await client.send("orders", i=f"TIMER_DELIVER_MS\x01{due_ms}\x02")
        broker.store.wait_dispatched()
        table = (await _content(client, RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
        assert int(table["timerOffsetBehind"]) + int(table["timerCongestNum"]) == 1
        assert float(table["timerEnqueueTps"]) > 0
        assert (table["timerReadBehind"], table["timerDequeueTps"]) == ("0", "0.0")

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
        found = await _content(client, RequestCode.GET_ALL_PRODUCER_INFO)
        assert [each["clientId"] for each in found["data"]["shop"]] == ["c1"]

    _with(tmp_path, work)


def test_a_queue_is_locked_by_one_client_at_a_time(tmp_path: Path) -> None:
    async def work(_broker: Broker, client: Client) -> None:
        async def locked(client_id: str, code: int = RequestCode.LOCK_BATCH_MQ) -> list[int]:
            queues = [{"topic": "orders", "brokerName": "broker-a", "queueId": 0}]
            content = {"consumerGroup": "billing", "clientId": client_id, "mqSet": queues}
            answer = await client.call(code, json.dumps(content).encode())
            assert answer.code == ResponseCode.SUCCESS
            found = json.loads(answer.body or b"{}").get("lockOKMQSet", [])
            return [each["queueId"] for each in found]

        assert await locked("c1") == [0]
        assert await locked("c2") == []
        assert await locked("c1") == [0]
        await locked("c2", RequestCode.UNLOCK_BATCH_MQ)
        assert await locked("c2") == []
        await locked("c1", RequestCode.UNLOCK_BATCH_MQ)
        assert await locked("c2") == [0]

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


def test_settings_of_groups_are_kept(tmp_path: Path) -> None:
    """All that RocketMQ knows, by later changes too; one of a wrong type is refused."""

    async def work(_broker: Broker, client: Client) -> None:
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        for change in ({"consumeEnable": False, "retryQueueNums": 3}, {"brokerId": 0, "other": 1}):
            body = json.dumps({"groupName": "billing", **change}).encode()
            assert (await client.call(code, body)).code == ResponseCode.SUCCESS
        body = json.dumps({"groupName": "billing", "retryMaxTimes": "many"}).encode()
        assert (await client.call(code, body)).code == ResponseCode.INVALID_PARAMETER
        config = await _content(client, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="billing")
        assert (config["consumeEnable"], config["retryQueueNums"]) == (False, 3)
        assert (config["retryMaxTimes"], "other" in config) == (16, False)

    _with(tmp_path, work)


def test_attributes_of_topics(tmp_path: Path) -> None:
    """Changes are kept, and unknown ones refused without a change."""

    async def work(broker: Broker, client: Client) -> None:
        fields = {"topic": "orders", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6"}
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        await client.call(code, **fields, attributes="+message.type=FIFO,+cleanup.policy=DELETE")
        await client.call(code, **fields, attributes="-cleanup.policy")
        for wrong in ("+queue.type=BatchCQ", "+message.type=ANY", "message.type=FIFO", "+other=1"):
            found = await client.call(code, **fields, attributes=wrong)
            assert found.code == ResponseCode.INVALID_PARAMETER, wrong
        assert broker.topics.require("orders").attributes == {"message.type": "FIFO"}

    _with(tmp_path, work)


def test_a_changed_topic_survives_a_restart(tmp_path: Path) -> None:
    async def change(_broker: Broker, client: Client) -> None:
        fields = {"topic": "orders", "perm": "6"}
        for queues in ("2", "5"):
            counts = {"readQueueNums": queues, "writeQueueNums": queues}
            await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields, **counts)

    async def look(broker: Broker, _client: Client) -> None:
        assert broker.topics.require("orders").write_queues == 5

    _with(tmp_path, change)
    _with(tmp_path, look)


def test_reset_of_one_queue(tmp_path: Path) -> None:
    """To an offset; others stay, and an offset outside of the queue is refused."""

    async def work(broker: Broker, client: Client) -> None:
        for queue_id in (0, 0, 0, 1):
            await client.send("orders", e=str(queue_id))
        broker.store.wait_dispatched()
        for queue_id in (0, 1):
            broker.offsets.set("billing", "orders", queue_id, 1)
        reset = {"topic": "orders", "group": "billing", "timestamp": "0", "queueId": "0"}
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        await client.call(code, **reset, offset="2")
        outside = await client.call(code, **reset, offset="9")
        assert outside.code == ResponseCode.SYSTEM_ERROR
        assert broker.offsets.of_group("billing")["orders"] == {0: 2, 1: 1}

    _with(tmp_path, work)


def test_rates_and_progress(tmp_path: Path) -> None:
    """Counts of messages put and read, the offset behind the read ones, and store times."""

    async def work(broker: Broker, client: Client) -> None:
        code = RequestCode.VIEW_BROKER_STATS_DATA
        puts = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "orders"}
        assert (await client.call(code, **puts)).code == ResponseCode.SYSTEM_ERROR
        for _ in range(3):
            await client.send("orders")
        broker.store.wait_dispatched()
        found = await _content(client, code, **puts)
        assert [each["sum"] for each in found.values()] == [3, 3, 3]
        pull = {"consumerGroup": "billing", "topic": "orders", "queueId": "0", "queueOffset": "0"}
        more = {"maxMsgNums": "2", "sysFlag": "4", "subscription": "*"}
        await client.call(RequestCode.PULL_MESSAGE, **pull, **more)
        gets = {"statsName": "GROUP_GET_NUMS", "statsKey": "orders@billing"}
        assert (await _content(client, code, **gets))["statsDay"]["sum"] == 2
        broker.offsets.set("billing", "orders", 0, 1)
        fields = {"consumerGroup": "billing", "topic": "orders"}
        body = (await client.call(RequestCode.GET_CONSUME_STATS, **fields)).body
        first_ms = broker.store.earliest_time("orders", 0)
        text = f'"consumerOffset": 1, "lastTimestamp": {first_ms}, "pullOffset": 2'
        assert text.encode() in body
        broker.topics.add_group("billing")
        body = (await client.call(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")).body
        assert b'"totalDiff":2' in body
        fields = {"group": "billing", "topic": "orders"}
        spans = await _content(client, RequestCode.QUERY_CONSUME_TIME_SPAN, **fields)
        assert spans["consumeTimeSpanSet"][0]["minTimeStamp"] == first_ms
        units = {"topic": "orders", "queueId": "0", "index": "1", "count": "9"}
        found = await _content(client, RequestCode.QUERY_CONSUME_QUEUE, **units)
        assert (found["maxQueueIndex"], len(found["queueData"])) == (3, 2)

    _with(tmp_path, work)


def test_members_answer(tmp_path: Path) -> None:
    """A request for a member is passed on to it; one that leaves is an error."""

    async def work(broker: Broker, client: Client) -> None:
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        fields = {"consumerGroup": "billing", "clientId": "c1"}
        absent = await client.call(code, **fields)
        assert absent.code == ResponseCode.SYSTEM_ERROR
        member = await Client.to(broker)
        beat = {"clientID": "c1", "consumerDataSet": [{"groupName": "billing"}]}
        await member.call(RequestCode.HEART_BEAT, json.dumps(beat).encode())
        answer, request = await _asked(client, code, member, **fields)
        member.writer.write(encode_frame(request.response(0, None, b"figures")))
        assert (await answer).body == b"figures"
        answer, _ = await _asked(client, code, member, **fields)
        member.close()
        assert (await answer).code == ResponseCode.SYSTEM_ERROR

    _with(tmp_path, work)


async def _asked(
    client: Client, code: int, member: Client, **fields: str
) -> tuple[asyncio.Future[RemotingCommand], RemotingCommand]:
    """The answer to come, and the request that the member got."""
    answer = asyncio.ensure_future(client.call(code, **fields))
    while (request := await member.receive()).code != code:
        pass
    return answer, request


def test_texts_by_namespace(tmp_path: Path) -> None:
    """A text is there until it is removed."""

    async def work(_broker: Broker, client: Client) -> None:
        place = {"namespace": "space", "key": "name"}
        await client.call(RequestCode.PUT_KV_CONFIG, **place, value="text")
        found = await client.call(RequestCode.GET_KV_CONFIG, **place)
        assert found.fields["value"] == "text"
        content = await _content(client, RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="space")
        assert content == {"table": {"name": "text"}}
        await client.call(RequestCode.DELETE_KV_CONFIG, **place)
        gone = await client.call(RequestCode.GET_KV_CONFIG, **place)
        assert gone.code == ResponseCode.QUERY_NOT_FOUND

    _with(tmp_path, work)
