"""Messages of clients do not reach topics of the broker, nor others through it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from lakelog_broker.broker import Broker
from lakelog_broker.codes import ResponseCode
from lakelog_broker.properties import client_properties
from lakelog_broker.remoting.requests import RequestCode
from lakelog_queues.units.properties import property_value
from plugins.broker.tests.support import (
    Client,
    at_a_broker,
    bodies,
    call_as,
    dispatched,
    run_at_a_broker,
)

_FORGED = (
    "REAL_TOPIC\x01victim\x02REAL_QID\x010\x02TIMER_OUT_MS\x011\x02POP_CK\x01x\x02"
    "1ST_POP_TIME\x011\x02TRAN_PREPARED_QUEUE_OFFSET\x010\x02TRANSACTION_CHECK_TIMES\x0199\x02"
    "KEYS\x01k\x02CLUSTER\x01other"
)
_SYSTEM_TOPICS = (
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "rmq_sys_wheel_timer",
    "rmq_sys_REVIVE_LOG_DefaultCluster",
)


@pytest.mark.parametrize(
    ("waits", "place"),
    [
        ("", "orders"),
        ("DELAY\x0118\x02", "SCHEDULE_TOPIC_XXXX"),
        ("TIMER_DELAY_SEC\x01999\x02", "rmq_sys_wheel_timer"),
        ("TRAN_MSG\x01true\x02", "RMQ_SYS_TRANS_HALF_TOPIC"),
    ],
)
@at_a_broker(default_queues=18)
async def test_forged_properties_are_removed(
    broker: Broker, client: Client, waits: str, place: str
) -> None:
    """A message that is set aside has its own topic, also with a forged name of the producer."""
    text, group = _FORGED + "\x02" + waits, "group\x02POP_CK\x01x"
    assert (await client.send("orders", i=text, a=group)).code == ResponseCode.SUCCESS
    dispatched(broker.store)
    (found,) = broker.store.read(place, 17 if place == "SCHEDULE_TOPIC_XXXX" else 0)
    properties = found.properties
    assert properties.get("REAL_TOPIC", "orders") == "orders"
    assert ("REAL_TOPIC" in properties) == (place != "orders")
    assert (properties["KEYS"], properties["CLUSTER"]) == ("k", broker.settings.cluster)
    forged = {"POP_CK", "1ST_POP_TIME", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"}
    assert not properties.keys() & forged
    assert properties.get("TIMER_OUT_MS") != "1"


@at_a_broker()
async def test_forged_properties_are_removed_from_batches(broker: Broker, client: Client) -> None:
    text = _FORGED.encode()
    tail = struct.pack(">h", len(text)) + text
    one = struct.pack(">iiiii", 21 + len(tail), 0, 0, 0, 1) + b"x" + tail
    assert (await client.send("orders", one, m="true")).code == ResponseCode.SUCCESS
    dispatched(broker.store)
    (found,) = broker.store.read("orders", 0)
    assert found.properties == {
        "KEYS": "k",
        "MSG_REGION": broker.settings.region,
        "TRACE_ON": "true",
        "CLUSTER": broker.settings.cluster,
    }


@at_a_broker()
async def test_system_topics_take_no_sends(broker: Broker, client: Client) -> None:
    for topic in _SYSTEM_TOPICS:
        for is_batch in ("false", "true"):
            assert (await client.send(topic, m=is_batch)).code == ResponseCode.NO_PERMISSION
        assert broker.store.queue_bounds(topic, 0) is None


@at_a_broker()
async def test_a_message_recalls_only_from_its_topic(broker: Broker, client: Client) -> None:
    for topic, code in (("victim", ResponseCode.NO_PERMISSION), ("orders", 0)):
        text = f"TIMER_DELAY_SEC\x01999\x02TIMER_DEL_UNIQKEY\x01{topic}+key\x02"
        assert (await client.send("orders", i=text)).code == code


def test_properties_of_clients_are_kept() -> None:
    """Names that only begin or end like those of the broker, and values that look like names."""
    for text in (b"", b"KEYS\x01REAL_TOPIC", b"MY_POP_CK\x011\x02POP_CKS\x012\x02", b"A\x01B\x02"):
        assert client_properties(text, "orders") is text
    assert property_value(client_properties(b"A\x011\x02POP_CK\x01", "orders"), b"POP_CK") is None


# --- two users: ann may use the topic "orders", eve the topic "other" ---


@pytest.fixture
def users(tmp_path: Path) -> Path:
    account = (
        '[[accounts]]\naccess_key = "{0}"\nsecret_key = "{0}"\n'
        'default_group_perm = "SUB"\ntopic_perms = {{ {1} = "PUB|SUB" }}\n'
    )
    path = tmp_path / "users.toml"
    path.write_text(account.format("ann-key", "orders") + account.format("eve-key", "other"))
    return path


async def send_as_ann(client: Client, **more: str) -> None:
    sent = {"a": "group", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "g": "1", **more}
    assert await call_as(client, "ann-key", RequestCode.SEND_MESSAGE_V2, sent, b"x") == 0


def test_a_transaction_is_ended_by_those_who_may_send_to_its_topic(
    tmp_path: Path, users: Path
) -> None:
    """By the topic of its half message: clients before 5.3 send none."""

    async def work(broker: Broker, client: Client) -> None:
        await send_as_ann(client, i="TRAN_MSG\x01true\x02")
        dispatched(broker.store)
        (half,) = broker.store.read("RMQ_SYS_TRANS_HALF_TOPIC", 0)
        end = {
            "commitLogOffset": str(half.physical_offset),
            "tranStateTableOffset": str(half.queue_offset),
            "commitOrRollback": "8",
            "producerGroup": "group",
        }
        code, refused = RequestCode.END_TRANSACTION, ResponseCode.NO_PERMISSION
        assert await call_as(client, "eve-key", code, end) == refused
        assert await call_as(client, "eve-key", code, {**end, "topic": "other"}) == refused
        assert await call_as(client, "ann-key", code, end) == 0
        assert bodies(broker.store, "orders") == [b"x"]

    run_at_a_broker(tmp_path, work, users=users)


def test_a_message_is_returned_by_those_who_may_read_its_topic(tmp_path: Path, users: Path) -> None:
    """Whatever topic the client names: a retry is a copy that its group reads."""

    async def work(broker: Broker, client: Client) -> None:
        await send_as_ann(client)
        back = {"offset": "0", "group": "readers", "delayLevel": "0"}
        code, other = RequestCode.CONSUMER_SEND_MSG_BACK, {"originTopic": "other"}
        refused = await call_as(client, "eve-key", code, {**back, **other})
        assert refused == ResponseCode.NO_PERMISSION
        assert broker.topics.find("%RETRY%readers") is None
        assert await call_as(client, "ann-key", code, {**back, "originTopic": "orders"}) == 0

    run_at_a_broker(tmp_path, work, users=users)


def test_a_user_without_rights_is_no_silent_stranger(tmp_path: Path, users: Path) -> None:
    """Its signature is right, so that its connection is closed only when it is idle."""

    async def work(broker: Broker, client: Client) -> None:
        read = {"topic": "orders", "queueId": "0"}
        for key, is_proven in (("", False), ("eve-key", True)):
            code = await call_as(client, key, RequestCode.GET_MAX_OFFSET, read)
            assert code == ResponseCode.NO_PERMISSION
            assert [each.is_proven for each in broker.limits.places] == [is_proven]

    run_at_a_broker(tmp_path, work, users=users)
