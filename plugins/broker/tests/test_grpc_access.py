"""Signatures and permissions at the gRPC port."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from lakelog import Store
from lakelog.errors import SettingsError
from lakelog_broker.broker import Broker
from lakelog_broker.grpc.protos import CODES, SERVICE, class_of, proto
from lakelog_broker.grpc.server import GrpcServer
from lakelog_broker.popping.service import Popping
from lakelog_broker.settings import BrokerSettings
from plugins.broker.tests.serving import served
from plugins.broker.tests.support import dispatched

PATIENCE_S: Final = 120
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
def broker(store: Store, tmp_path: Path) -> Iterator[Broker]:
    users = tmp_path / "users.toml"
    users.write_text(_USERS)
    with served(store, BrokerSettings(port=0, grpc_port=0, users=users)) as running:
        yield running


def signed(key: str, secret: str, age: timedelta = timedelta(0)) -> dict[str, str]:
    text = (datetime.now(UTC) - age).strftime("%Y%m%dT%H%M%SZ")
    signature = hmac.digest(secret.encode(), text.encode(), "sha1").hex()
    head = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"authorization": head, "x-mq-date-time": text}


ANN: Final = ("ann-key", "secret-of-ann")
EVE: Final = ("eve-key", "secret-of-eve")


def call(broker: Broker, name: str, request: Any, metadata: dict[str, str]) -> Any:
    """The answer of a call; the first one of a stream."""
    method = SERVICE.methods_by_name[name]
    with grpc.insecure_channel(broker.grpc_address) as channel:
        is_stream = name in ("ReceiveMessage", "Telemetry", "PullMessage")
        kind = "stream" if name == "Telemetry" else "unary"
        made = getattr(channel, f"{kind}_{'stream' if is_stream else 'unary'}")(
            f"/{SERVICE.full_name}/{name}",
            class_of(method.input_type).SerializeToString,
            class_of(method.output_type).FromString,
        )
        sent = iter([request]) if name == "Telemetry" else request
        pairs = [("x-mq-client-id", "c1"), *metadata.items()]
        answer = made(sent, metadata=pairs, timeout=PATIENCE_S)
        return next(answer) if is_stream else answer


def code(broker: Broker, name: str, request: Any, user: tuple[str, str] | None = ANN) -> str:
    metadata = {} if user is None else signed(*user)
    number = call(broker, name, request, metadata).status.code
    return next(each for each, value in CODES.items() if value == number)


def send_request(topic: str, **system: Any) -> Any:
    sent = proto("Message")(topic={"name": topic}, body=b"x")
    sent.system_properties.message_id = "m1"
    for name, value in system.items():
        setattr(sent.system_properties, name, value)
    return proto("SendMessageRequest")(messages=[sent])


def test_every_call_needs_a_signature(broker: Broker) -> None:
    """Also those that are not served."""
    for method in SERVICE.methods:
        request = class_of(method.input_type)()
        if method.name != "PullMessage":
            assert code(broker, method.name, request, None) == "UNAUTHORIZED", method.name
            wrong = ("ann-key", "another secret")
            assert code(broker, method.name, request, wrong) == "UNAUTHORIZED", method.name
    old = call(broker, "SendMessage", send_request("orders"), signed(*ANN, timedelta(hours=1)))
    assert old.status.code == CODES["UNAUTHORIZED"] == 40100
    assert broker.store.queue_bounds("orders", 0) is None


def test_sends_need_pub(broker: Broker) -> None:
    assert code(broker, "SendMessage", send_request("orders")) == "OK"
    for topic in ("bills", "unlisted"):
        assert code(broker, "SendMessage", send_request(topic)) == "FORBIDDEN"
    both = send_request("orders")
    both.messages.extend(send_request("bills").messages)
    assert code(broker, "SendMessage", both) == "FORBIDDEN"


@pytest.mark.parametrize(
    ("topic", "group", "expected"),
    [("bills", "billing", False), ("orders", "billing", True), ("bills", "other", True)],
)
def test_consumers_need_sub_of_topic_and_group(
    broker: Broker, topic: str, group: str, expected: bool
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
        assert (code(broker, name, request) == "FORBIDDEN") is expected, name
    assert (broker.members.group(group) is None) is expected


def test_a_transaction_is_ended_by_those_who_may_send_to_its_topic(broker: Broker) -> None:
    """The name of another topic in the request does not help."""
    sent = call(broker, "SendMessage", send_request("orders", message_type=4), signed(*ANN))
    dispatched(broker.store)
    end = proto("EndTransactionRequest")(resolution=1, topic={"name": "other"})
    end.transaction_id = sent.entries[0].transaction_id
    assert code(broker, "EndTransaction", end, EVE) == "FORBIDDEN"
    end.topic.name = "orders"
    assert code(broker, "EndTransaction", end) == "OK"
    dispatched(broker.store)
    queues = [broker.store.queue_bounds("orders", each) for each in range(8)]
    assert [bounds for bounds in queues if bounds] == [(0, 1)]


def test_an_address_that_others_reach_needs_users(store: Store) -> None:
    """As that of the remoting port."""
    broker = Broker.over(store, BrokerSettings(host="0.0.0.0", grpc_port=0))
    with pytest.raises(SettingsError, match="allow_anonymous"):
        GrpcServer(broker, Popping(broker))
