"""Records of both brokers: the same after the same sends; lakelog's serves those of RocketMQ."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

import lakelog
from lakelog import StoredMessage
from lakelog.files.filesystem import RealFileSystem
from lakelog_broker.embedded import EmbeddedBroker
from lakelog_broker.remoting.requests import RequestCode as Code
from lakelog_queues.configs import topics_of
from lakelog_queues.units.properties import stored_properties
from lakelog_replication.remoting import Response, call
from lakelog_replication.settings import Address
from plugins.broker.tests.raw_client import send
from tests.broker.later import lakelogs_broker
from tests.replication.masterbroker import CREATE_GROUP, broker, eventually
from tests.support.fixtures import StoreFixtures

pytestmark = pytest.mark.timeout(600)

_TOPIC: Final = "Stored"
_BORN_MS: Final = time.time_ns() // 1_000_000
_KEY: Final = "UNIQ_KEY\x01AC11000109150000000000000000000{}\x02"
_MANY: Final = "".join(f"name{n}\x01{n}\x02" for n in range(120))
_SENT: Final = (
    "",
    "WAIT\x01true\x02TAGS\x01a",
    "KEYS\x01k1 k2\x02WAIT\x01true\x02TAGS\x01a\x02region\x01north\x02été\x01n°1\x02",
    "TAGS\x01a\x02TAGS\x01b\x02empty\x01\x02nothing\x02\x01nameless\x02x\x01y\x01z\x02",
    "Aa\x011\x02BB\x012\x02C#\x013\x02TRACE_ON\x01false\x02MSG_REGION\x01elsewhere\x02",
    _MANY,
    "DELAY\x0116\x02TAGS\x01a\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01raw\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x013600\x02",
    f"TIMER_DELIVER_MS\x01{_BORN_MS}\x02TAGS\x01late\x02",
)
_BATCHED: Final = struct.Struct(">iiiii")
_ANSWERED_BY: Final = re.compile(rb"(ORIGIN_MESSAGE_ID\x01)[0-9A-F]+")
_PLACES: Final = (_TOPIC, "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC")


def _batch(*messages: tuple[bytes, str]) -> bytes:
    found = b""
    for number, (body, text) in enumerate(messages):
        tail = struct.pack(">h", len(text.encode())) + text.encode()
        size = _BATCHED.size + len(body) + len(tail)
        found += _BATCHED.pack(size, 0, 0, number, len(body)) + body + tail
    return found


def _sent(address: Address, body: bytes, properties: str, **more: str) -> Response:
    fields = {"a": "raw", "b": _TOPIC, "c": "TBW102", "d": "4", "e": "1", "f": "0", "h": "7"}
    fields |= {"g": str(_BORN_MS), "i": properties, "j": "0", **more}
    return call(address, Code.SEND_MESSAGE_V2, fields, body)


def _send_all(address: Address) -> None:
    eventually(lambda: _sent(address, b"first", _KEY.format(99)))
    for number, properties in enumerate(_SENT):
        _sent(address, b"%d" % number, properties + "\x02" + _KEY.format(10 + number))
    inner = (b"a", ""), (b"b", "TAGS\x01b"), (b"c", "KEYS\x01c\x02")
    _sent(address, _batch(*inner), "WAIT\x01true\x02", m="true")
    found = _sent(address, b"returned", "KEYS\x01r\x02" + _KEY.format(30)).fields["msgId"]
    call(address, CREATE_GROUP, body=b'{"groupName":"back"}')
    offset = str(int(found[-16:], 16))
    returned = {"offset": offset, "group": "back", "delayLevel": "16", "originTopic": _TOPIC}
    call(address, Code.CONSUMER_SEND_MSG_BACK, returned)


def _fields(stored: StoredMessage) -> Mapping[str, object]:
    names = "queue_id queue_offset magic body flag sys_flag born_timestamp_ms reconsume_times"
    properties = _ANSWERED_BY.sub(rb"\1", stored.properties_bytes)
    return {name: getattr(stored, name) for name in ("topic", *names.split())} | {
        "properties": properties
    }


def _records(path: Path) -> list[Mapping[str, object]]:
    with lakelog.open(path, mode="read") as store:
        return [_fields(each) for each in store.scan() if each.topic in _PLACES]


def test_properties_of_a_real_broker_are_in_the_order_of_stored_ones(
    store_fixtures: StoreFixtures,
) -> None:
    """Needs no JDK. A message of a batch has its own properties first, then those of the batch."""
    with lakelog.open(store_fixtures.get("real_broker").store, mode="read") as store:
        every = [each.properties_bytes for each in store.scan()]
    texts = [text for text in every if b"MSG_REGION\x01" in text]  # of clients
    batched = [text for text in texts if text.count(b"UNIQ_KEY\x01") == 2]
    assert 0 < len(batched) < len(texts)
    for text in texts:
        own = text.index(b"MSG_REGION\x01") if text in batched else 0
        assert stored_properties(text[own:]) == text[own:]


def test_messages_and_topics_of_a_real_broker_are_served(
    store_fixtures: StoreFixtures, tmp_path: Path
) -> None:
    path = store_fixtures.copy("real_broker", tmp_path).store
    topics = topics_of(RealFileSystem(), path)
    with lakelog.open(path, mode="read") as store:
        before = {
            topic: sorted(
                bytes(each.body)
                for queue in store.queues(topic)
                for each in store.read(topic, queue.queue_id)
            )
            for topic in store.topics()
        }
    system = ("%", "rmq_sys", "RMQ_SYS", "SCHEDULE_TOPIC")
    [topic, *_] = [each for each in before.keys() & topics if not each.startswith(system)]
    with EmbeddedBroker(path) as broker:
        for each, bodies in before.items():
            assert sorted(bytes(message.body) for message in broker.messages(each)) == bodies
        assert set(topics) <= {each.topic for each in broker.broker.topics}
        send(broker.namesrv, topic, b"by a client of lakelog")
        assert bytes(broker.messages(topic)[-1].body) == b"by a client of lakelog"


@pytest.mark.java
def test_sends_are_stored_as_by_rocketmq(tmp_path: Path) -> None:
    """The order of properties is compared too: it is that of a Java map."""
    (tmp_path / "ours").mkdir()
    with (
        lakelogs_broker(tmp_path / "ours", options=["--cluster", "Tests"]) as ours,
        broker(tmp_path / "theirs", timerWheelEnable="true") as theirs,
    ):
        _send_all(ours.server)
        _send_all(theirs.client)
        mine, real = _records(tmp_path / "ours" / "store"), _records(theirs.store)
    assert len(real) == len(_SENT) + 6
    assert mine == real
