"""Requests of tools, and replies to producers."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import attrs

from lakelog_broker.broker import Broker
from lakelog_broker.codes import ResponseCode
from lakelog_broker.remoting.frame import RemotingCommand, encode_frame
from lakelog_broker.remoting.requests import RequestCode
from lakelog_broker.traffic import BROKER_PUT, DAY, HOUR, MINUTE, TOPIC_PUT, Rate, Traffic
from lakelog_queues.finding.results import QueueInfo
from plugins.broker.tests.support import Client, at_a_broker, run_at_a_broker


@at_a_broker()
async def test_files_for_slaves(broker: Broker, client: Client) -> None:
    """Each has its table and a version, also when there is no file yet."""
    tables = {
        RequestCode.GET_ALL_TOPIC_CONFIG: "topicConfigTable",
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "subscriptionGroupTable",
        RequestCode.GET_ALL_DELAY_OFFSET: "offsetTable",
        RequestCode.GET_ALL_CONSUMER_OFFSET: "offsetTable",
    }
    for code, name in tables.items():
        content = await client.content(code)
        assert content[name] == {}
        assert "counter" in content["dataVersion"]
    await client.send("orders")
    broker.offsets.set("billing", "orders", 3, 7)
    topics = await client.content(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert topics["topicConfigTable"]["orders"]["writeQueueNums"] == 4
    offsets = await client.content(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert offsets["offsetTable"] == {"orders@billing": {"3": 7}}


@at_a_broker()
async def test_state_and_settings(broker: Broker, client: Client) -> None:
    """Figures count from the start of the broker, and not from the first request for them."""
    await client.send("orders")
    broker.store.wait_dispatched()
    table = (await client.content(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
    assert int(table["bootTimestamp"]) == broker.started_ms
    end = broker.store.max_offset
    assert int(table["putMessageSizeTotal"]) == int(table["commitLogMaxOffset"]) == end > 0
    text = (await client.call(RequestCode.GET_BROKER_CONFIG)).body.decode()
    assert "brokerName=broker-a\n" in text
    refused = await client.call(RequestCode.UPDATE_BROKER_CONFIG, b"brokerName=b")
    assert refused.code == ResponseCode.NO_PERMISSION
    # As fastjson writes a map of message queues.
    body = (await client.call(RequestCode.GET_TOPIC_STATS_INFO, topic="orders")).body
    queue = b'{"brokerName":"broker-a","queueId":0,"topic":"orders"}'
    assert body.startswith(b'{"offsetTable":{%b:{"lastUpdateTimestamp":' % queue)


@at_a_broker()
async def test_figures_of_timers(broker: Broker, client: Client) -> None:
    """A message that waits is counted, and so is its arrival."""
    due_ms = time.time_ns() // 1_000_000 + 3_600_000
    await client.send("orders", i=f"TIMER_DELIVER_MS\x01{due_ms}\x02")
    broker.store.wait_dispatched()
    table = (await client.content(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
    assert int(table["timerOffsetBehind"]) + int(table["timerCongestNum"]) == 1
    assert float(table["timerEnqueueTps"]) > 0
    assert (table["timerReadBehind"], table["timerDequeueTps"]) == ("0", "0.0")


@at_a_broker()
async def test_offsets_of_groups(broker: Broker, client: Client) -> None:
    """Statistics, a reset to the beginning and the end, a clone, and the end of a group."""
    for _ in range(3):
        await client.send("orders")
    broker.store.wait_dispatched()
    broker.offsets.set("billing", "orders", 0, 2)
    found = await client.call(RequestCode.GET_CONSUME_STATS, consumerGroup="billing")
    assert b'"brokerOffset":3,"consumerOffset":2' in found.body
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
    groups = await client.content(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="orders")
    assert groups == {"groupList": ["billing", "copy"]}
    topics = await client.content(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="copy")
    assert topics == {"topicList": ["orders"]}
    gone = {"groupName": "copy", "cleanOffset": "true"}
    await client.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, **gone)
    assert broker.offsets.of_group("copy") == {}


@at_a_broker()
async def test_reset_of_one_queue(broker: Broker, client: Client) -> None:
    """To an offset; others stay, and an offset outside of the queue is refused."""
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
    await client.call(code, **reset, offset="4")
    assert broker.offsets.of_group("billing")["orders"] == {0: 3, 1: 1}, "the end of the queue"


@at_a_broker()
async def test_connections_and_settings_of_groups(broker: Broker, client: Client) -> None:
    """Members are listed while they are connected; settings of a wrong type are refused."""
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    absent = await client.call(code, consumerGroup="billing")
    assert absent.code == ResponseCode.CONSUMER_NOT_ONLINE
    subscription = {"topic": "orders", "subString": "*"}
    group = {"groupName": "billing", "subscriptionDataSet": [subscription]}
    shop = [{"groupName": "shop"}]
    await client.beat(clientID="c1", consumerDataSet=[group], producerDataSet=shop)
    found = await client.content(code, consumerGroup="billing")
    assert [each["clientId"] for each in found["connectionSet"]] == ["c1"]
    assert found["subscriptionTable"]["orders"]["subString"] == "*"
    code = RequestCode.GET_PRODUCER_CONNECTION_LIST
    assert len((await client.content(code, producerGroup="shop"))["connectionSet"]) == 1
    assert (await client.call(code, producerGroup="none")).code == ResponseCode.SYSTEM_ERROR
    found = await client.content(RequestCode.GET_ALL_PRODUCER_INFO)
    assert [each["clientId"] for each in found["data"]["shop"]] == ["c1"]
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    for change, expected in (
        ({"consumeEnable": False, "retryQueueNums": 3}, ResponseCode.SUCCESS),
        ({"brokerId": 0, "other": 1, "retryMaxTimes": 5}, ResponseCode.SUCCESS),
        ({"retryMaxTimes": "many"}, ResponseCode.INVALID_PARAMETER),
    ):
        body = json.dumps({"groupName": "billing", **change}).encode()
        assert (await client.call(code, body)).code == expected
    config = await client.content(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="billing")
    assert (config["consumeEnable"], config["retryQueueNums"]) == (False, 3)
    assert config["retryMaxTimes"] == broker.topics.retry_limit("billing") == 5
    assert "other" not in config


@at_a_broker()
async def test_a_queue_is_locked_by_one_client_at_a_time(broker: Broker, client: Client) -> None:
    async def locked(client_id: str, code: int = RequestCode.LOCK_BATCH_MQ) -> list[int]:
        queues = [{"topic": "orders", "brokerName": "broker-a", "queueId": 0}]
        content = {"consumerGroup": "billing", "clientId": client_id, "mqSet": queues}
        answer = await client.call(code, json.dumps(content).encode())
        assert answer.code == ResponseCode.SUCCESS
        found = json.loads(answer.body or b"{}").get("lockOKMQSet", [])
        return [each["queueId"] for each in found]

    assert await locked("c1") == [], "there is no such queue"
    await client.send("orders")
    assert await locked("c1") == [0]
    assert await locked("c2") == []
    assert await locked("c1") == [0]
    await locked("c2", RequestCode.UNLOCK_BATCH_MQ)
    assert await locked("c2") == []
    await locked("c1", RequestCode.UNLOCK_BATCH_MQ)
    assert await locked("c2") == [0]


@at_a_broker()
async def test_replies_reach_the_producer_that_asked(broker: Broker, client: Client) -> None:
    """A reply is stored and pushed; one to a client that is gone is an error, and not stored."""
    asking = await Client.to(broker)
    await asking.beat(clientID="asking", producerDataSet=[{"groupName": "shop"}])
    topic = broker.settings.reply_topic
    fields = {"a": "g", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1"}
    to = "CORRELATION_ID\x01id7\x02REPLY_TO_CLIENT\x01"
    code = RequestCode.SEND_REPLY_MESSAGE_V2
    sent = await client.call(code, b"answer", **fields, i=f"{to}asking")
    assert sent.code == ResponseCode.SUCCESS
    pushed = await asking.receive()
    assert (pushed.code, pushed.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"answer")
    assert "CORRELATION_ID\x01id7\x02" in pushed.fields["properties"]
    end = broker.store.max_offset
    lost = await client.call(code, b"answer", **fields, i=f"{to}gone")
    assert lost.code == ResponseCode.SYSTEM_ERROR
    assert broker.store.max_offset == end
    asking.close()


@at_a_broker()
async def test_attributes_of_topics(broker: Broker, client: Client) -> None:
    """Changes are kept, and unknown ones refused without a change."""
    fields = {"topic": "orders", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6"}
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    await client.call(code, **fields, attributes="+message.type=FIFO,+cleanup.policy=DELETE")
    await client.call(code, **fields, attributes="-cleanup.policy")
    for wrong in ("+queue.type=BatchCQ", "+message.type=ANY", "message.type=FIFO", "+other=1"):
        found = await client.call(code, **fields, attributes=wrong)
        assert found.code == ResponseCode.INVALID_PARAMETER, wrong
    assert broker.topics.require("orders").attributes == {"message.type": "FIFO"}


def test_a_changed_topic_survives_a_restart(tmp_path: Path) -> None:
    async def change(_broker: Broker, client: Client) -> None:
        for queues in ("2", "5"):
            fields = {"perm": "6", "readQueueNums": queues, "writeQueueNums": queues}
            await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, topic="orders", **fields)

    async def look(broker: Broker, _client: Client) -> None:
        assert broker.topics.require("orders").write_queues == 5

    run_at_a_broker(tmp_path, change)
    run_at_a_broker(tmp_path, look)


@at_a_broker()
async def test_rates_and_progress(broker: Broker, client: Client) -> None:
    """Counts of messages put and read, the offset behind the read ones, and store times."""
    code = RequestCode.VIEW_BROKER_STATS_DATA
    puts = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "orders"}
    assert (await client.call(code, **puts)).code == ResponseCode.SYSTEM_ERROR
    for _ in range(3):
        await client.send("orders")
    broker.store.wait_dispatched()
    found = await client.content(code, **puts)
    assert [each["sum"] for each in found.values()] == [3, 3, 3]
    pull = {"consumerGroup": "billing", "topic": "orders", "queueId": "0", "queueOffset": "0"}
    more = {"maxMsgNums": "2", "sysFlag": "4", "subscription": "*"}
    await client.call(RequestCode.PULL_MESSAGE, **pull, **more)
    gets = {"statsName": "GROUP_GET_NUMS", "statsKey": "orders@billing"}
    assert (await client.content(code, **gets))["statsDay"]["sum"] == 2
    broker.offsets.set("billing", "orders", 0, 1)
    fields = {"consumerGroup": "billing", "topic": "orders"}
    body = (await client.call(RequestCode.GET_CONSUME_STATS, **fields)).body
    first_ms = broker.store.earliest_time("orders", 0)
    text = f'"consumerOffset":1,"lastTimestamp":{first_ms},"pullOffset":2'
    assert text.encode() in body
    broker.topics.add_group("billing")
    body = (await client.call(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")).body
    assert b'"totalDiff":2' in body
    fields = {"group": "billing", "topic": "orders"}
    spans = await client.content(RequestCode.QUERY_CONSUME_TIME_SPAN, **fields)
    assert spans["consumeTimeSpanSet"][0]["minTimeStamp"] == first_ms
    units = {"topic": "orders", "queueId": "0", "index": "1", "count": "9"}
    found = await client.content(RequestCode.QUERY_CONSUME_QUEUE, **units)
    assert (found["maxQueueIndex"], len(found["queueData"])) == (3, 2)


@at_a_broker()
async def test_members_answer(broker: Broker, client: Client) -> None:
    """A request for a member is passed on to it; one that leaves is an error."""
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    fields = {"consumerGroup": "billing", "clientId": "c1"}
    assert (await client.call(code, **fields)).code == ResponseCode.SYSTEM_ERROR
    member = await Client.to(broker)
    await member.beat(clientID="c1", consumerDataSet=[{"groupName": "billing"}])

    async def asked() -> tuple[asyncio.Future[RemotingCommand], RemotingCommand]:
        """The answer to come, and the request that the member got."""
        answer = asyncio.ensure_future(client.call(code, **fields))
        while (request := await member.receive()).code != code:
            pass
        return answer, request

    answer, request = await asked()
    member.writer.write(encode_frame(request.response(0, None, b"figures")))
    assert (await answer).body == b"figures"
    answer, _ = await asked()
    member.close()
    assert (await answer).code == ResponseCode.SYSTEM_ERROR


@at_a_broker()
async def test_texts_by_namespace(broker: Broker, client: Client) -> None:
    place = {"namespace": "space", "key": "name"}
    await client.call(RequestCode.PUT_KV_CONFIG, **place, value="text")
    found = await client.call(RequestCode.GET_KV_CONFIG, **place)
    assert found.fields["value"] == "text"
    content = await client.content(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="space")
    assert content == {"table": {"name": "text"}}
    await client.call(RequestCode.DELETE_KV_CONFIG, **place)
    gone = await client.call(RequestCode.GET_KV_CONFIG, **place)
    assert gone.code == ResponseCode.QUERY_NOT_FOUND


# --- counts of messages over minutes, hours and days ---


def grown(topic: str, max_offset: int = 0) -> QueueInfo:
    """A queue with an end."""
    return QueueInfo(topic, 0, "SimpleCQ", 0, max_offset, 0)


@attrs.define
class Counted:
    """A topic, one of the broker's own, and a clock."""

    now_s: float = 1_000_000.0
    queues: list[QueueInfo] = attrs.field(factory=lambda: [grown("t", 5), grown("own")])
    traffic: Traffic = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        def is_of_users(topic: str) -> bool:
            return topic != "own"

        self.traffic = Traffic(lambda: self.queues, is_of_users, lambda: self.now_s)

    def put(self, queue: int, count: int) -> None:
        """Let a queue grow."""
        found = self.queues[queue]
        self.queues[queue] = grown(found.topic, found.max_offset + count)

    def wait(self, seconds: int) -> None:
        """Let time pass, with a sample every 10 seconds."""
        for _ in range(seconds // 10):
            self.now_s += 10
            self.traffic.sample()

    def rates(self) -> dict[Any, Rate]:
        return self.traffic.rates(TOPIC_PUT, "t") or {}


def test_rates_of_windows() -> None:
    """A message counts in each window until it is older than the window."""
    case = Counted()
    assert case.rates() == {}
    case.wait(20)
    case.put(0, 60)
    case.put(1, 7)  # the broker's own are not part of the sum
    assert case.rates() == dict.fromkeys((MINUTE, HOUR, DAY), Rate(60, 3.0))
    assert case.traffic.recent_rates(BROKER_PUT) == [60.0, 3.0, 3.0]
    for seconds, minute, hour in ((120, 0, 60), (2 * 3600, 0, 0)):
        case.wait(seconds)
        found = case.rates()
        assert [found[each].count for each in (MINUTE, HOUR, DAY)] == [minute, hour, 60]


def test_counts_of_the_last_two_midnights() -> None:
    case = Counted()
    case.put(0, 3)
    case.traffic.note_read("billing", "t", 0, 1, 1)
    assert case.traffic.mornings == ((0, 0), (0, 0))
    case.wait(86400)
    assert case.traffic.mornings == ((0, 0), (3, 1))
    case.put(0, 1)
    case.wait(86400)
    assert case.traffic.mornings == ((3, 1), (4, 1))
    case.traffic.forget("billing")
    assert case.traffic.pulled_offset("billing", "t", 0) == 0
