"""Messages of clients do not reach topics of the broker, nor others through it."""

from __future__ import annotations

import asyncio
import hmac
import struct
from base64 import b64encode
from pathlib import Path

import pytest

from lakelog_broker.broker import Broker
from lakelog_broker.codes import RequestCode, ResponseCode
from lakelog_broker.properties import client_properties, property_value
from plugins.broker.tests.clocks import dispatched
from plugins.broker.tests.support import Client, served

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


def _one(broker: Broker, topic: str) -> dict[str, str]:
    dispatched(broker.store)
    (found,) = broker.store.read(topic, 0)
    return found.properties


@pytest.mark.parametrize(
    ("waits", "place"),
    [
        ("", "orders"),
        ("DELAY\x0118\x02", "SCHEDULE_TOPIC_XXXX"),
        ("TIMER_DELAY_SEC\x01999\x02", "rmq_sys_wheel_timer"),
        ("TRAN_MSG\x01true\x02", "RMQ_SYS_TRANS_HALF_TOPIC"),
    ],
)
def test_forged_properties_are_removed(tmp_path: Path, waits: str, place: str) -> None:
    """A message that is set aside has its own topic, also with a forged name of the producer."""

    async def main() -> None:
        async with served(tmp_path, default_queues=18) as broker:
            client = await Client.to(broker)
            text, group = _FORGED + "\x02" + waits, "group\x02POP_CK\x01x"
            assert (await client.send("orders", i=text, a=group)).code == ResponseCode.SUCCESS
            queue_id = 17 if place == "SCHEDULE_TOPIC_XXXX" else 0
            dispatched(broker.store)
            (found,) = broker.store.read(place, queue_id)
            properties = found.properties
            assert properties.get("REAL_TOPIC", "orders") == "orders"
            assert ("REAL_TOPIC" in properties) == (place != "orders")
            assert properties["KEYS"] == "k"
            assert properties["CLUSTER"] == broker.settings.cluster
            assert not properties.keys() & {
                *("POP_CK", "1ST_POP_TIME", "TRAN_PREPARED_QUEUE_OFFSET"),
                "TRANSACTION_CHECK_TIMES",
            }
            assert properties.get("TIMER_OUT_MS") != "1"
            client.close()

    asyncio.run(main())


def test_forged_properties_are_removed_from_batches(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as broker:
            client, text = await Client.to(broker), _FORGED.encode()
            tail = struct.pack(">h", len(text)) + text
            one = struct.pack(">iiiii", 21 + len(tail), 0, 0, 0, 1) + b"x" + tail
            answer = await client.send("orders", one, m="true")
            assert answer.code == ResponseCode.SUCCESS
            assert _one(broker, "orders") == {
                "KEYS": "k",
                "MSG_REGION": broker.settings.region,
                "TRACE_ON": "true",
                "CLUSTER": broker.settings.cluster,
            }
            client.close()

    asyncio.run(main())


@pytest.mark.parametrize("topic", _SYSTEM_TOPICS)
def test_system_topics_take_no_sends(tmp_path: Path, topic: str) -> None:
    async def main() -> None:
        async with served(tmp_path) as broker:
            client = await Client.to(broker)
            for is_batch in ("false", "true"):
                found = await client.send(topic, m=is_batch)
                assert found.code == ResponseCode.NO_PERMISSION
            assert broker.store.queue_bounds(topic, 0) is None
            client.close()

    asyncio.run(main())


def test_a_message_recalls_only_from_its_topic(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as broker:
            client = await Client.to(broker)
            for topic, code in (("victim", ResponseCode.NO_PERMISSION), ("orders", 0)):
                text = f"TIMER_DELAY_SEC\x01999\x02TIMER_DEL_UNIQKEY\x01{topic}+key\x02"
                assert (await client.send("orders", i=text)).code == code
            client.close()

    asyncio.run(main())


def test_properties_of_clients_are_kept() -> None:
    """Names that only begin or end like those of the broker, and values that look like names."""
    for text in (b"", b"KEYS\x01REAL_TOPIC", b"MY_POP_CK\x011\x02POP_CKS\x012\x02", b"A\x01B\x02"):
        assert client_properties(text) is text
    assert property_value(client_properties(b"A\x011\x02POP_CK\x01"), b"POP_CK") is None


def two_users(folder: Path) -> Path:
    """A file of users: one may use the topic ``orders``, the other the topic ``other``."""
    account = (
        '[[accounts]]\naccess_key = "{0}"\nsecret_key = "{0}"\n'
        'default_group_perm = "SUB"\ntopic_perms = {{ {1} = "PUB|SUB" }}\n'
    )
    path = folder / "users.toml"
    path.write_text(account.format("ann-key", "orders") + account.format("eve-key", "other"))
    return path


def signed(key: str, fields: dict[str, str], body: bytes = b"") -> dict[str, str]:
    """The fields of a request with a signature."""
    fields = {**fields, "AccessKey": key}
    content = "".join(value for _, value in sorted(fields.items())).encode() + body
    signature = b64encode(hmac.digest(key.encode(), content, "sha1")).decode()
    return {**fields, "Signature": signature}


def test_a_transaction_is_ended_by_those_who_may_send_to_its_topic(tmp_path: Path) -> None:
    """By the topic of its half message: clients before 5.3 send none."""

    async def main() -> None:
        async with served(tmp_path, users=two_users(tmp_path)) as broker:
            client = await Client.to(broker)
            sent = {"a": "group", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "g": "1"}
            sent["i"] = "TRAN_MSG\x01true\x02"
            send = RequestCode.SEND_MESSAGE_V2
            assert (await client.call(send, b"x", **signed("ann-key", sent, b"x"))).code == 0
            dispatched(broker.store)
            (half,) = broker.store.read("RMQ_SYS_TRANS_HALF_TOPIC", 0)
            end = {
                "commitLogOffset": str(half.physical_offset),
                "tranStateTableOffset": str(half.queue_offset),
                "commitOrRollback": "8",
                "producerGroup": "group",
            }
            code = RequestCode.END_TRANSACTION
            for named in ({}, {"topic": "other"}):
                answer = await client.call(code, **signed("eve-key", {**end, **named}))
                assert answer.code == ResponseCode.NO_PERMISSION
            assert (await client.call(code, **signed("ann-key", end))).code == 0
            dispatched(broker.store)
            assert [each.body for each in broker.store.read("orders", 0)] == [b"x"]
            client.close()

    asyncio.run(main())


def test_a_message_is_returned_by_those_who_may_read_its_topic(tmp_path: Path) -> None:
    """Whatever topic the client names: a retry is a copy that its group reads."""

    async def main() -> None:
        async with served(tmp_path, users=two_users(tmp_path)) as broker:
            client = await Client.to(broker)
            sent = {"a": "group", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "g": "1"}
            send = RequestCode.SEND_MESSAGE_V2
            assert (await client.call(send, b"x", **signed("ann-key", sent, b"x"))).code == 0
            back = {"offset": "0", "group": "readers", "delayLevel": "0", "originTopic": "other"}
            code = RequestCode.CONSUMER_SEND_MSG_BACK
            answer = await client.call(code, **signed("eve-key", back))
            assert answer.code == ResponseCode.NO_PERMISSION
            assert broker.topics.find("%RETRY%readers") is None
            back["originTopic"] = "orders"
            assert (await client.call(code, **signed("ann-key", back))).code == 0
            client.close()

    asyncio.run(main())
