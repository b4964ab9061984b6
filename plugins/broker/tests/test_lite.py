"""Lite topics: subscriptions, order, dead letters, places; and messages with a priority."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog import Message
from lakelog_broker.broker import Broker
from lakelog_broker.grpc.clients import GrpcClients
from lakelog_broker.grpc.mapping import CODES, IllegalRequest, proto
from lakelog_broker.grpc.server import Messaging
from lakelog_broker.popping.service import Popping
from lakelog_broker.settings import BrokerSettings
from lakelog_rocketmq.config import TopicConfig
from plugins.broker.tests.support import Client, at_a_broker, bodies, dispatched

TOPIC: Final = "chats"
GROUP: Final = "readers"
PARTIAL_ADD, PARTIAL_REMOVE, COMPLETE_ADD, COMPLETE_REMOVE = range(4)


class _Call:
    """The context of a call without a deadline."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [("x-mq-client-id", self._client_id)]

    def time_remaining(self) -> None:
        return None


class _Member:
    """A Lite consumer with an open telemetry stream.

    :ivar settings: those that the broker completed
    """

    def __init__(self, served: _Served, client_id: str) -> None:
        self._served, self._call = served, _Call(client_id)
        self.settings: Any = None
        self._stream: Any = None

    async def connect(self, client_type: int = 6) -> None:
        command = proto("TelemetryCommand")()
        command.settings.client_type = client_type
        command.settings.subscription.group.name = GROUP

        async def requests() -> AsyncIterator[Any]:
            yield command
            await asyncio.Event().wait()

        self._stream = self._served.clients.telemetry(requests(), self._call)
        self.settings = (await anext(self._stream)).settings

    async def command(self) -> Any:
        """The next command of the broker."""
        return await anext(self._stream)

    async def sync(self, action: int, *names: str, topic: str = TOPIC, **start: Any) -> str:
        """Change the subscription; the name of the answer's code."""
        request = proto("SyncLiteSubscriptionRequest")(action=action, lite_topic_set=names)
        request.topic.name, request.group.name = topic, GROUP
        for name, value in start.items():
            setattr(request.offset_option, name, value)
        try:
            answer = await self._served.clients.sync_lite(request, self._call)
        except IllegalRequest as error:
            return error.code
        return _name(answer.status)

    async def receive(self, count: int = 16, wait_s: int = 0) -> list[Any]:
        request = proto("ReceiveMessageRequest")(batch_size=count)
        request.group.name, request.message_queue.topic.name = GROUP, TOPIC
        request.invisible_duration.seconds = 60
        request.long_polling_timeout.seconds = wait_s
        calls = self._served.calls
        answers = [each async for each in calls.receive(request, self._call)]
        return [each.message for each in answers if each.HasField("message")]

    async def got(self, count: int = 16) -> list[str]:
        """Receive messages, and acknowledge them; their bodies."""
        found = await self.receive(count)
        for each in found:
            assert await self.acknowledge(each) == "OK"
        return [each.body.decode() for each in found]

    async def acknowledge(self, message: Any) -> str:
        system = message.system_properties
        request = proto("AckMessageRequest")(group={"name": GROUP}, topic={"name": TOPIC})
        lite = system.lite_topic
        request.entries.add(receipt_handle=system.receipt_handle, lite_topic=lite)
        return _name((await self._served.calls.acknowledge(request, self._call)).status)

    async def dead_letter(self, message: Any) -> str:
        request = proto("ForwardMessageToDeadLetterQueueRequest")()
        request.group.name, request.topic.name = GROUP, TOPIC
        request.receipt_handle = message.system_properties.receipt_handle
        request.lite_topic = message.system_properties.lite_topic
        return _name((await self._served.calls.dead_letter(request, self._call)).status)


def _name(status: Any) -> str:
    return next(name for name, number in CODES.items() if number == status.code)


class _Served:
    """The calls of clients at a broker without a port."""

    def __init__(self, store: lakelog.Store, **settings: Any) -> None:
        self.broker = Broker(store, BrokerSettings(port=0, **settings))
        self.broker.topics.set(TopicConfig(TOPIC, 2, 2, attributes={"message.type": "LITE"}))
        self.clients = GrpcClients(self.broker)
        self.calls = Messaging(self.broker, Popping(self.broker), self.clients)

    async def send(self, name: str, *texts: str) -> str:
        """Send messages to a Lite topic; the name of the answer's code."""
        request = proto("SendMessageRequest")()
        for each in texts:
            sent = request.messages.add(topic={"name": TOPIC}, body=each.encode())
            system = sent.system_properties
            system.message_id, system.lite_topic, system.message_type = f"id-{each}", name, 5
        answer = await self.calls.send(request, _Call("producer"))
        dispatched(self.broker.store)
        return _name(answer.status)

    async def member(self, client_id: str, *names: str) -> _Member:
        made = _Member(self, client_id)
        await made.connect()
        assert await made.sync(COMPLETE_ADD, *names) == "OK"
        return made


def with_lite(work: Callable[..., Awaitable[None]]) -> Callable[[Path], None]:
    def test(tmp_path: Path) -> None:
        async def main(store: lakelog.Store) -> None:
            await work(_Served(store))

        with lakelog.open(tmp_path / "store", light_queues=True) as store:
            asyncio.run(main(store))

    return test


@with_lite
async def test_a_client_gets_the_messages_of_its_lite_topics_in_order(served: _Served) -> None:
    """And none of one topic while others of it are out."""
    assert await served.send("a", "a0", "a1", "a2") == "OK"
    assert await served.send("b", "b0") == "OK"
    member = await served.member("m1", "a")
    assert member.settings.subscription.lite_subscription_quota == 2_000
    assert member.settings.subscription.max_lite_topic_size == 64
    [first] = await member.receive(1)
    assert first.topic.name == TOPIC
    assert first.system_properties.lite_topic == "a"
    assert first.system_properties.message_type == 5
    assert await member.receive() == []
    assert await member.sync(PARTIAL_ADD, "b") == "OK"
    assert await member.got() == ["b0"]
    assert await member.acknowledge(first) == "OK"
    assert first.body == b"a0"
    assert await member.got() == ["a1", "a2"]
    assert await member.sync(PARTIAL_REMOVE, "a") == "OK"
    await served.send("a", "a3")
    assert await member.receive() == []
    assert await member.sync(COMPLETE_ADD, "a") == "OK"
    assert await member.got() == ["a3"]
    assert await member.sync(COMPLETE_REMOVE) == "OK"


@with_lite
async def test_a_waiting_request_follows_the_subscription(served: _Served) -> None:
    member = await served.member("m1", "a")
    waiting = asyncio.create_task(member.receive(wait_s=60))
    await asyncio.sleep(0)
    assert await member.sync(COMPLETE_ADD, "b") == "OK"
    await served.send("a", "a0")
    await served.send("b", "b0")
    assert [each.body for each in await waiting] == [b"b0"]


@with_lite
async def test_a_group_goes_on_in_a_lite_topic_after_a_new_start(served: _Served) -> None:
    member = await served.member("m1", "a")
    await served.send("a", "a0", "a1")
    assert await member.got(1) == ["a0"]
    await served.broker.save()
    again = _Served(served.broker.store)
    assert await (await again.member("m1", "a")).got() == ["a1"]
    assert again.broker.topics.group_attribute(GROUP, "lite.bind.topic") == TOPIC


@with_lite
async def test_a_dead_letter_does_not_feed_its_lite_topic_again(served: _Served) -> None:
    member = await served.member("m1", "a")
    await served.send("a", "a0", "a1")
    [first] = await member.receive(1)
    assert await member.dead_letter(first) == "OK"
    dispatched(served.broker.store)
    assert served.broker.bounds(f"%LMQ%${TOPIC}$a", 0) == (0, 2)
    [dead] = served.broker.store.read(f"%DLQ%{GROUP}", 0)
    assert dead.properties["DLQ_ORIGIN_TOPIC"] == TOPIC
    assert await member.got() == ["a1"]


@with_lite
async def test_a_lite_topic_of_an_exclusive_group_has_one_client(served: _Served) -> None:
    attributes = {"lite.bind.topic": TOPIC, "lite.sub.model": "Exclusive"}
    served.broker.topics.set_group(GROUP, {"attributes": attributes})
    one, other = await served.member("m1"), await served.member("m2")
    assert await one.sync(PARTIAL_ADD, "a") == "OK"
    assert await other.sync(PARTIAL_ADD, "a") == "OK"
    command = await one.command()
    assert command.notify_unsubscribe_lite_command.lite_topic == "a"
    assert await one.sync(COMPLETE_ADD, "a") == "OK", "it did not know yet"
    assert (await one.command()).notify_unsubscribe_lite_command.lite_topic == "a"
    await served.send("a", "a0")
    assert await one.receive() == []
    assert await other.got() == ["a0"]


@with_lite
async def test_a_subscription_begins_where_it_says(served: _Served) -> None:
    await served.send("a", "a0", "a1", "a2")
    member = await served.member("m1")
    starts: list[tuple[dict[str, Any], list[str]]] = [
        ({"policy": 2}, []),
        ({"policy": 1}, ["a0", "a1", "a2"]),
        ({"tail_n": 1}, ["a2"]),
        ({"offset": 1}, ["a1", "a2"]),
        ({"policy": 0}, []),
    ]
    for start, expected in starts:
        assert await member.sync(PARTIAL_ADD, "a", **start) == "OK"
        assert await member.got() == expected, start
        assert await member.sync(PARTIAL_REMOVE, "a") == "OK"


@with_lite
async def test_wrong_lite_requests_are_refused(served: _Served) -> None:
    topics = served.broker.topics
    for name in ("a,%LMQ%$others$b", "a/b", "x" * 65):
        assert await served.send(name, "no") == "ILLEGAL_LITE_TOPIC"
    assert served.broker.store.queue_bounds(TOPIC, 0) is None
    member = await served.member("m1", "a")
    assert await member.sync(PARTIAL_ADD, "a$b") == "ILLEGAL_LITE_TOPIC"
    topics.set(TopicConfig("plain", 1, 1))
    assert await member.sync(PARTIAL_ADD, "a", topic="plain") == "ILLEGAL_TOPIC"
    topics.set(TopicConfig("others", 1, 1, attributes={"message.type": "LITE"}))
    assert await member.sync(PARTIAL_ADD, "a", topic="others") == "ILLEGAL_CONSUMER_GROUP"
    topics.set_group(
        GROUP, {"attributes": {"lite.bind.topic": TOPIC, "lite.sub.client.quota": "1"}}
    )
    assert await member.sync(PARTIAL_ADD, "b") == "LITE_SUBSCRIPTION_QUOTA_EXCEEDED"
    await member.connect(client_type=3)
    unknown = _Member(served, "m9")
    assert await unknown.sync(COMPLETE_ADD, "a") == "UNRECOGNIZED_CLIENT_TYPE"


def test_a_store_without_light_queues_refuses_lite_messages(tmp_path: Path) -> None:
    with lakelog.open(tmp_path / "store") as store:
        assert asyncio.run(_Served(store).send("a", "a0")) == "BAD_REQUEST"
        assert store.queue_bounds(TOPIC, 0) is None


def test_messages_reach_light_queues_that_are_there(tmp_path: Path) -> None:
    """Also if a process with another setting dispatches them, as after a crash of the broker."""
    lite = {"INNER_MULTI_DISPATCH": "%LMQ%$chats$a"}
    path = tmp_path / "store"
    for dispatchers in (("auto",), ()):
        with lakelog.open(path, light_queues=True, dispatchers=dispatchers) as store:
            store.put(Message(TOPIC, b"x", properties=lite, queue_id=0))
    with lakelog.open(path) as store:
        dispatched(store)
        assert store.queue_bounds("%LMQ%$chats$a", 0) == (0, 2)


@at_a_broker()
async def test_a_client_writes_to_lite_topics_of_its_topic_only(
    broker: Broker, client: Client
) -> None:
    """It could write to any light queue by the property that feeds them."""
    for light, code in (("%LMQ%$others$a", 16), ("%LMQ%$orders$a", 0), ("%LMQ%own", 0)):
        answer = await client.send("orders", i=f"INNER_MULTI_DISPATCH\x01{light}\x02")
        assert answer.code == code, light


# --- priority ---


@at_a_broker()
async def test_messages_of_a_high_priority_come_first(broker: Broker, client: Client) -> None:
    fields = {"topic": "jobs", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
    await client.call(17, **fields, attributes="+message.type=PRIORITY")
    for text in ("0", "2", "9", "1"):
        answer = await client.send("jobs", text.encode(), i=f"_SYS_MSG_PRIORITY_\x01{text}\x02")
        assert answer.fields["queueId"] == str(min(int(text), 3))
    dispatched(broker.store)
    got = []
    for _ in range(4):
        pop = {"consumerGroup": "workers", "topic": "jobs", "queueId": "-1", "maxMsgNums": "1"}
        more = {"invisibleTime": "60000", "pollTime": "0", "initMode": "0"}
        answer = await client.call(200050, **pop, **more)
        got.append(answer.fields["msgOffsetInfo"].split(" ")[1])
    assert got == ["3", "2", "1", "0"]


@at_a_broker()
async def test_a_message_with_a_delay_has_no_priority(broker: Broker, client: Client) -> None:
    """As with RocketMQ, its property is removed."""
    await client.send(
        "jobs", b"x", d="4", e="1", i="_SYS_MSG_PRIORITY_\x013\x02__SHARDINGKEY\x01k\x02"
    )
    await client.send("jobs", b"y", d="4", e="1", i="_SYS_MSG_PRIORITY_\x01-3\x02")
    dispatched(broker.store)
    assert bodies(broker.store, "jobs", 1) == [b"x", b"y"]
    [stored, _] = broker.store.read("jobs", 1)
    assert "_SYS_MSG_PRIORITY_" not in stored.properties


@pytest.mark.parametrize("change", ["message.type=LITE", "+message.type=NEW", "+other=x"])
@at_a_broker()
async def test_unknown_attributes_of_topics_are_refused(
    broker: Broker, client: Client, change: str
) -> None:
    fields = {"topic": "jobs", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
    answer = await client.call(17, **fields, attributes=change)
    assert answer.code == 29
    assert "is not served; give +NAME=VALUE" in (answer.remark or "")
    assert broker.topics.find("jobs") is None


@at_a_broker()
async def test_attributes_of_groups_are_changed_as_those_of_topics(
    broker: Broker, client: Client
) -> None:
    async def change(changes: str) -> int:
        body = b'{"groupName": "readers", "attributes": %s}' % changes.encode()
        return (await client.call(200, body)).code

    assert await change('{"+lite.bind.topic": "chats", "+priority.factor": "0"}') == 0
    assert await change('{"-priority.factor": ""}') == 0
    for wrong in ('{"priority.factor": "5"}', '{"+priority.factor": "101"}', '{"+other": "1"}'):
        assert await change(wrong) == 29
    assert broker.topics.group_settings("readers")["attributes"] == {"lite.bind.topic": "chats"}
