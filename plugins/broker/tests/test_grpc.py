"""Calls of the gRPC protocol, by RocketMQ's Python client and without one; users at its port."""

from __future__ import annotations

import asyncio
import hmac
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
)

from lakelog import Store
from lakelog.errors import SettingsError
from lakelog_broker.broker import Broker
from lakelog_broker.embedded import running_broker
from lakelog_broker.grpc.mapping import CODES, SERVICE, proto
from lakelog_broker.grpc.server import GrpcServer
from lakelog_broker.popping.service import Popping
from lakelog_broker.scheduled.recalls import RecallHandle
from lakelog_broker.settings import BrokerSettings
from lakelog_rocketmq.config import TopicConfig
from plugins.broker.tests.serving import served
from plugins.broker.tests.support import broker_over, dispatched
from tests.support.waiting import until

PATIENCE_S: Final = 120
TOPIC: Final = "orders"


@pytest.fixture
def broker(store: Store) -> Iterator[Broker]:
    """A broker in another thread, since the client blocks."""
    with served(store, BrokerSettings(port=0, grpc_port=0, default_queues=2)) as running:
        yield running


@pytest.fixture
def configuration(broker: Broker) -> ClientConfiguration:
    return ClientConfiguration(broker.grpc_address, Credentials(), request_timeout=30)


@pytest.fixture
def producer(configuration: ClientConfiguration) -> Iterator[Any]:
    made = Producer(configuration, [TOPIC])
    made.startup()
    yield made
    made.shutdown()


def message(body: bytes, tag: str = "", group: str = "") -> Any:
    made = Message()
    made.topic, made.body = TOPIC, body
    if tag:
        made.tag = tag
    if group:
        made.message_group = group
    made.add_property("number", "7")
    made.keys = "k1"
    return made


def received(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        got = consumer.receive(16, 60) or []
        for each in got:
            consumer.ack(each)
        found += got
    return found


def test_a_simple_consumer_gets_the_messages_of_its_tags(
    configuration: ClientConfiguration, producer: Any, broker: Broker
) -> None:
    sent = [producer.send(message(b"%d" % n, "ab"[n % 2])) for n in range(10)]
    consumer = SimpleConsumer(configuration, "G", {TOPIC: FilterExpression("a")}, await_duration=5)
    consumer.startup()
    try:
        found = received(consumer, 5)
    finally:
        consumer.shutdown()
    assert sorted(each.body for each in found) == [b"0", b"2", b"4", b"6", b"8"]
    assert {each.message_id for each in found} == {each.message_id for each in sent[::2]}
    (first, *_) = found
    assert (first.tag, first.properties, set(first.keys)) == ("a", {"number": "7"}, {"k1"})
    assert not any(each.corrupted for each in found)
    assert sum(broker.offsets.get("G", TOPIC, each) or 0 for each in range(2)) >= 8


def test_a_push_consumer_gets_a_failed_message_again(
    configuration: ClientConfiguration, producer: Any
) -> None:
    attempts: list[tuple[bytes, int]] = []
    done = threading.Event()

    class Listener(MessageListener):  # type: ignore[misc]  # the client has no types
        def consume(self, found: Any) -> Any:
            attempts.append((found.body, found.delivery_attempt))
            if found.delivery_attempt == 1:
                return ConsumeResult.FAILURE
            done.set()
            return ConsumeResult.SUCCESS

    consumer = started_consumer(configuration, Listener())
    try:
        producer.send(message(b"fails once"))
        assert done.wait(PATIENCE_S)
    finally:
        consumer.shutdown()
    assert attempts == [(b"fails once", 1), (b"fails once", 2)]


def started_consumer(configuration: ClientConfiguration, listener: Any) -> Any:
    """A running consumer: the client may give up after a few seconds, and fails in its clean-up."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        consumer = PushConsumer(configuration, "P", listener, {TOPIC: FilterExpression()})
        try:
            consumer.startup()
        except AttributeError:
            if time.monotonic() > end_s:
                raise
        else:
            return consumer


def call(broker: Broker, name: str, request: Any, client_id: str = "c1", **metadata: str) -> Any:
    """The answer of one call without a client, to send what clients refuse; of a stream the first.

    :param metadata: with ``_`` for ``-`` in names
    """
    method = SERVICE.methods_by_name[name]
    with grpc.insecure_channel(broker.grpc_address) as channel:
        is_stream = name in ("ReceiveMessage", "Telemetry", "PullMessage")
        kind = "stream" if name == "Telemetry" else "unary"
        made = getattr(channel, f"{kind}_{'stream' if is_stream else 'unary'}")(
            f"/{SERVICE.full_name}/{name}",
            proto(method.input_type.name).SerializeToString,
            proto(method.output_type.name).FromString,
        )
        pairs = [("x-mq-client-id", client_id)] if client_id else []
        pairs += [(key.replace("_", "-"), value) for key, value in metadata.items()]
        sent = iter([request]) if name == "Telemetry" else request
        answer = made(sent, metadata=pairs, timeout=PATIENCE_S)
        return next(answer) if is_stream else answer


def one_message(**system: Any) -> Any:
    sent = proto("Message")(topic={"name": TOPIC}, body=b"x")
    sent.system_properties.message_id = "m1"
    for name, value in system.items():
        setattr(sent.system_properties, name, value)
    return sent


def send_code(broker: Broker, sent: Any) -> int:
    answer = call(broker, "SendMessage", proto("SendMessageRequest")(messages=[sent]))
    code: int = answer.status.code
    return code


@pytest.mark.parametrize(
    ("group", "topic", "code"),
    [
        ("a/b", TOPIC, "ILLEGAL_CONSUMER_GROUP"),
        ("g" * 256, TOPIC, "ILLEGAL_CONSUMER_GROUP"),
        ("G", "t" * 128, "ILLEGAL_TOPIC"),
        ("G", TOPIC, "OK"),
    ],
)
def test_settings_with_an_illegal_name_are_noted_nowhere(
    broker: Broker, group: str, topic: str, code: str
) -> None:
    command = proto("TelemetryCommand")()
    subscription = command.settings.subscription
    subscription.group.name = group
    subscription.subscriptions.add().topic.name = topic
    assert call(broker, "Telemetry", command).status.code == CODES[code]
    assert broker.topics.groups() == ([group] if code == "OK" else [])


@pytest.mark.parametrize("name", ["REAL_TOPIC", "POP_CK", "UNIQ_KEY"])
def test_a_client_does_not_set_properties_of_the_broker(broker: Broker, name: str) -> None:
    sent = one_message()
    sent.user_properties[name] = "x"
    assert send_code(broker, sent) == CODES["ILLEGAL_MESSAGE_PROPERTY_KEY"]
    assert broker.store.queue_bounds(TOPIC, 0) is None


def test_illegal_messages_get_their_codes(broker: Broker) -> None:
    separator = one_message()
    separator.user_properties["a"] = "b\x02REAL_TOPIC\x01other"
    assert send_code(broker, separator) == CODES["ILLEGAL_MESSAGE_PROPERTY_KEY"]
    assert send_code(broker, one_message(message_id="")) == CODES["ILLEGAL_MESSAGE_ID"]
    assert send_code(broker, one_message(tag="a|b")) == CODES["ILLEGAL_MESSAGE_TAG"]
    damaged = one_message()
    damaged.system_properties.body_digest.type = 1
    damaged.system_properties.body_digest.checksum = "00000000"
    assert send_code(broker, damaged) == CODES["MESSAGE_CORRUPTED"]
    large = one_message()
    large.body = bytes((4 << 20) + 1)
    assert send_code(broker, large) == CODES["MESSAGE_BODY_TOO_LARGE"]
    for topic, code in (("a b", "ILLEGAL_TOPIC"), ("RMQ_SYS_TRANS_HALF_TOPIC", "FORBIDDEN")):
        sent = one_message()
        sent.topic.name = topic
        assert send_code(broker, sent) == CODES[code]


def test_a_topic_takes_messages_of_its_type(broker: Broker) -> None:
    broker.topics.set(TopicConfig(TOPIC, 1, 1, 6, {"message.type": "FIFO"}))
    wrong = one_message(message_type=1)
    assert send_code(broker, wrong) == CODES["MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"]
    assert send_code(broker, one_message(message_type=2, message_group="g")) == CODES["OK"]
    route = call(broker, "QueryRoute", proto("QueryRouteRequest")(topic={"name": TOPIC}))
    assert list(route.message_queues[0].accept_message_types) == [2]


def test_calls_that_fail_answer_with_codes(broker: Broker) -> None:
    ack = proto("AckMessageRequest")(group={"name": "G"}, topic={"name": TOPIC})
    ack.entries.add(message_id="m", receipt_handle="nonsense")
    found = call(broker, "AckMessage", ack).status.code
    assert found == CODES["INVALID_RECEIPT_HANDLE"]
    end = proto("EndTransactionRequest")(transaction_id="nonsense")
    assert call(broker, "EndTransaction", end).status.code == CODES["INVALID_TRANSACTION_ID"]
    beat = proto("HeartbeatRequest")()
    assert call(broker, "Heartbeat", beat, "").status.code == CODES["CLIENT_ID_REQUIRED"]
    offset = proto("GetOffsetRequest")()
    assert call(broker, "GetOffset", offset).status.code == CODES["NOT_IMPLEMENTED"]


def test_one_file_of_a_pair_is_refused(store: Store, tmp_path: Any) -> None:
    async def start() -> None:
        settings = BrokerSettings(port=0, grpc_port=0, key=tmp_path / "key.pem")
        async with running_broker(store, settings):
            pass

    with pytest.raises(SettingsError, match="together"):
        asyncio.run(start())


def send_at(broker: Broker, name: str, due_s: int) -> Any:
    sent = one_message(message_id=name, message_type=3)
    sent.body = name.encode()
    sent.system_properties.delivery_timestamp.seconds = due_s
    return send_entry(broker, sent)


def test_a_message_that_waits_is_recalled(broker: Broker) -> None:
    """By the handle of its send, which no other message has; others of its time are delivered."""
    due_s = int(time.time()) + 3
    recalled, kept = send_at(broker, "m1", due_s), send_at(broker, "m2", due_s)
    assert recalled.recall_handle != kept.recall_handle
    request = proto("RecallMessageRequest")(topic={"name": TOPIC})
    request.recall_handle = recalled.recall_handle
    answer = call(broker, "RecallMessage", request)
    assert (answer.status.code, answer.message_id) == (CODES["OK"], "m1")
    later = send_at(broker, "m3", due_s + 2)
    assert later.recall_handle

    def bodies() -> list[bytes]:
        queues = [each for each in range(2) if broker.store.queue_bounds(TOPIC, each)]
        return [m.body for each in queues for m in broker.store.read(TOPIC, each)]

    until(lambda: b"m3" in bodies())
    assert sorted(bodies()) == [b"m2", b"m3"]


def test_recalls_that_fail_answer_with_codes(broker: Broker) -> None:
    entry = send_at(broker, "m1", int(time.time()) + 600)
    later_ms = int(time.time() * 1000) + 600_000
    for topic, handle, code in (
        ("unknown", entry.recall_handle, "TOPIC_NOT_FOUND"),
        (TOPIC, "nonsense", "BAD_REQUEST"),
        (TOPIC, RecallHandle(TOPIC, "another", 1, "m1").encode(), "BAD_REQUEST"),
        (TOPIC, RecallHandle(TOPIC, broker.settings.name, 1, "m1").encode(), "BAD_REQUEST"),
        (
            TOPIC,
            RecallHandle(TOPIC, broker.settings.name, later_ms, "\x02A").encode(),
            "BAD_REQUEST",
        ),
    ):
        request = proto("RecallMessageRequest")(topic={"name": topic}, recall_handle=handle)
        assert call(broker, "RecallMessage", request).status.code == CODES[code]
    assert not send_entry(broker, one_message()).recall_handle


def send_entry(broker: Broker, sent: Any) -> Any:
    return call(broker, "SendMessage", proto("SendMessageRequest")(messages=[sent])).entries[0]


# --- signatures and permissions ---


_USERS: Final = """
[[accounts]]
access_key = "ann-key"
secret_key = "secret-of-ann"
topic_perms = { orders = "PUB", bills = "SUB" }
group_perms = { billing = "SUB" }

[[accounts]]
access_key = "eve-key"
secret_key = "secret-of-eve"
topic_perms = { other = "PUB|SUB" }
"""


@pytest.fixture
def guarded(store: Store, tmp_path: Path) -> Iterator[Broker]:
    """A broker with two users."""
    users = tmp_path / "users.toml"
    users.write_text(_USERS)
    with served(store, BrokerSettings(port=0, grpc_port=0, users=users)) as running:
        yield running


def signed(key: str, secret: str, age: timedelta = timedelta(0)) -> dict[str, str]:
    text = (datetime.now(UTC) - age).strftime("%Y%m%dT%H%M%SZ")
    signature = hmac.digest(secret.encode(), text.encode(), "sha1").hex()
    head = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"authorization": head, "x_mq_date_time": text}


ANN: Final = ("ann-key", "secret-of-ann")
EVE: Final = ("eve-key", "secret-of-eve")


def code(broker: Broker, name: str, request: Any, user: tuple[str, str] | None = ANN) -> str:
    """The name of the code with which a call of a user is answered."""
    number = call(broker, name, request, **({} if user is None else signed(*user))).status.code
    return next(each for each, value in CODES.items() if value == number)


def send_request(topic: str, **system: Any) -> Any:
    sent = one_message(**system)
    sent.topic.name = topic
    return proto("SendMessageRequest")(messages=[sent])


def test_every_call_needs_a_signature(guarded: Broker) -> None:
    """Also those that are not served."""
    for method in SERVICE.methods:
        request = proto(method.input_type.name)()
        if method.name != "PullMessage":
            assert code(guarded, method.name, request, None) == "UNAUTHORIZED", method.name
            wrong = ("ann-key", "another secret")
            assert code(guarded, method.name, request, wrong) == "UNAUTHORIZED", method.name
    old = call(guarded, "SendMessage", send_request("orders"), **signed(*ANN, timedelta(hours=1)))
    assert old.status.code == CODES["UNAUTHORIZED"] == 40100
    assert guarded.store.queue_bounds("orders", 0) is None


def test_sends_need_pub(guarded: Broker) -> None:
    assert code(guarded, "SendMessage", send_request("orders")) == "OK"
    for topic in ("bills", "unlisted"):
        assert code(guarded, "SendMessage", send_request(topic)) == "FORBIDDEN"
    both = send_request("orders")
    both.messages.extend(send_request("bills").messages)
    assert code(guarded, "SendMessage", both) == "FORBIDDEN"


@pytest.mark.parametrize(
    ("topic", "group", "expected"),
    [("bills", "billing", False), ("orders", "billing", True), ("bills", "other", True)],
)
def test_consumers_need_sub_of_topic_and_group(
    guarded: Broker, topic: str, group: str, expected: bool
) -> None:
    named = {"group": {"name": group}, "topic": {"name": topic}}
    receive = proto("ReceiveMessageRequest")(
        group={"name": group}, message_queue={"topic": {"name": topic}}, batch_size=1
    )
    receive.invisible_duration.seconds = 30
    receive.long_polling_timeout.seconds = 0
    subscribed = proto("TelemetryCommand")()
    subscribed.settings.subscription.group.name = group
    subscribed.settings.subscription.subscriptions.add().topic.name = topic
    for name, request in (
        ("ReceiveMessage", receive),
        ("AckMessage", proto("AckMessageRequest")(**named)),
        ("QueryAssignment", proto("QueryAssignmentRequest")(**named)),
        ("ChangeInvisibleDuration", proto("ChangeInvisibleDurationRequest")(**named)),
        ("Telemetry", subscribed),
    ):
        assert (code(guarded, name, request) == "FORBIDDEN") is expected, name
    assert (group not in guarded.members.groups) is expected


def test_a_transaction_is_ended_by_those_who_may_send_to_its_topic(guarded: Broker) -> None:
    """The name of another topic in the request does not help."""
    sent = call(guarded, "SendMessage", send_request("orders", message_type=4), **signed(*ANN))
    dispatched(guarded.store)
    end = proto("EndTransactionRequest")(resolution=1, topic={"name": "other"})
    end.transaction_id = sent.entries[0].transaction_id
    assert code(guarded, "EndTransaction", end, EVE) == "FORBIDDEN"
    end.topic.name = "orders"
    assert code(guarded, "EndTransaction", end) == "OK"
    dispatched(guarded.store)
    queues = [guarded.store.queue_bounds("orders", each) for each in range(8)]
    assert [bounds for bounds in queues if bounds] == [(0, 1)]


def test_an_address_that_others_reach_needs_users(store: Store) -> None:
    """As that of the remoting port."""
    broker = broker_over(store, host="0.0.0.0", grpc_port=0)
    with pytest.raises(SettingsError, match="allow_anonymous"):
        GrpcServer(broker, Popping(broker))
