"""Plain sends in the short way: the same answers and the same messages as in the long one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lakelog import StoredMessage
from lakelog_broker.broker import Broker
from lakelog_broker.codes import ResponseCode
from lakelog_broker.popping.service import Popping
from lakelog_broker.properties import CommonProperties
from lakelog_broker.remoting.frame import RemotingCommand, decode_frame, encode_frame
from lakelog_broker.remoting.sending import PlainSends, send
from lakelog_broker.remoting.server import Connection, RemotingServer
from lakelog_daemon.connection_limits import Admission
from lakelog_queues.units.properties import stored_properties
from lakelog_rocketmq.config import TopicConfig
from plugins.broker.tests.support import dispatched, served

_SEND: Final = 310
_NAMES: Final = ("TAGS", "KEYS", "UNIQ_KEY", "WAIT", "a", "Aa", "BB", "region", "TRACE_ON", "DELAY")
_ADDED: Final = b"MSG_REGION\x01r\x02TRACE_ON\x01true\x02CLUSTER\x01c\x02"
_texts = st.text(st.characters(min_codepoint=32, max_codepoint=300), max_size=6)
_property = st.builds("{}\x01{}".format, st.sampled_from(_NAMES) | _texts, _texts)
_properties = st.builds(
    lambda parts, end: "\x02".join(parts) + end,
    st.lists(_property | st.sampled_from(["x", "\x01", "y\x01z\x01"]), max_size=6),
    st.sampled_from(["\x02", ""]),
)
_PLAIN: Final = "KEYS\x01k\x02WAIT\x01true\x02UNIQ_KEY\x0101\x02"


class _Ways:
    """Both ways to one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker, self.short = broker, PlainSends(broker)
        server = RemotingServer(broker, lambda: Popping(broker), self.short.answer)
        self.connection = Connection(server, Admission("127.0.0.1", bool, 1, 0.0))
        self.connection.address = "127.0.0.1:9"

    def sent(self, frame: bytes) -> tuple[bool, list[RemotingCommand], list[StoredMessage]]:
        """Send in the short way; whether it was taken, the answers and what is stored."""
        start = self.broker.store.max_offset
        answer = self.short.answer(self.connection.address, frame)
        answers = [decode_frame(answer[4:])] if answer else []
        return answer is not None, answers, [*self.broker.store.scan(start)]

    def sent_in_the_long_way(
        self, frame: bytes
    ) -> tuple[list[RemotingCommand], list[StoredMessage]]:
        start, request = self.broker.store.max_offset, decode_frame(frame)
        answer = send(self.connection, request)
        assert isinstance(answer, RemotingCommand)
        answers = [] if request.is_one_way else [decode_frame(encode_frame(answer)[4:])]
        return answers, [*self.broker.store.scan(start)]


@pytest.fixture
def ways(tmp_path: Path) -> Iterator[_Ways]:
    with asyncio.Runner() as runner:
        context = served(tmp_path)
        broker = runner.run(context.__aenter__())
        broker.topics.set(TopicConfig("orders", 4, 4))
        yield _Ways(broker)
        dispatched(broker.store)
        runner.run(context.__aexit__(None, None, None))


def _frame(properties: str, body: bytes = b"x", flag: int = 0, **more: str) -> bytes:
    """A frame without its length, as Java's client writes it."""
    fields = {
        "a": "group",
        "b": "orders",
        "c": "TBW102",
        "d": "4",
        "e": "1",
        "f": "0",
        "g": "1700000000000",
        "h": "7",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
        **more,
    }
    return encode_frame(RemotingCommand(_SEND, 5, flag, fields, body))[4:]


def _stable(message: StoredMessage) -> dict[str, Any]:
    """All fields that do not tell the place."""
    names = "topic queue_id body properties_bytes flag sys_flag born_timestamp_ms born_host magic"
    names += " store_host reconsume_times prepared_transaction_offset"
    return {name: getattr(message, name) for name in names.split()}


def _without_place(answers: list[RemotingCommand]) -> list[dict[str, Any]]:
    found = [attrs.asdict(each) for each in answers]
    for each in found:
        each["fields"] |= {"msgId": len(each["fields"]["msgId"]), "queueOffset": ""}
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    properties=_properties,
    body=st.binary(max_size=20),
    flag=st.sampled_from([0, 2]),
    queue_id=st.integers(-1, 5),
)
@example(properties=_PLAIN, body=b"", flag=2, queue_id=3)
def test_both_ways_do_the_same(
    ways: _Ways, properties: str, body: bytes, flag: int, queue_id: int
) -> None:
    frame = _frame(properties, body, flag, e=str(queue_id))
    taken, answers, found = ways.sent(frame)
    if not taken:
        assert (answers, found) == ([], [])
        assert (properties, queue_id in range(4)) != (_PLAIN, True)
        return
    others, same = ways.sent_in_the_long_way(frame)
    assert [_stable(each) for each in found] == [_stable(each) for each in same]
    assert _without_place(answers) == _without_place(others)


@pytest.mark.parametrize(
    "fields",
    [
        {"b": "unknown"},
        {"b": "%RETRY%G"},
        {"b": "SCHEDULE_TOPIC_XXXX"},
        {"m": "true"},
        {"e": "4"},
        {"g": "x"},
        {"i": "DELAY\x013\x02"},
        {"i": "TIMER_DELAY_SEC\x013\x02"},
        {"i": "TRAN_MSG\x01true\x02"},
        {"i": "REAL_TOPIC\x01other\x02"},
        {"i": 'K\x01"\x02'},
        {"i": "K\x01\\u0002\x02"},
        {"i": "K\x01\x00\x02"},
        {"AccessKey": "k"},
    ],
    ids=str,
)
def test_other_sends_are_left(ways: _Ways, fields: dict[str, str]) -> None:
    """Nothing is done for them."""
    assert ways.sent(_frame(_PLAIN))[0]
    others = {name: text for name, text in fields.items() if name != "i"}
    frame = _frame(fields.get("i", _PLAIN), b"x", 0, **others)
    assert ways.sent(frame) == (False, [], [])


def test_a_topic_that_is_changed_or_removed_is_looked_at_again(ways: _Ways) -> None:
    topics = ways.broker.topics
    assert ways.sent(_frame(_PLAIN, e="3"))[0]
    topics.set(TopicConfig("orders", 2, 2))
    assert not ways.sent(_frame(_PLAIN, e="3"))[0]
    assert ways.sent(_frame(_PLAIN, e="1"))[0]
    topics.set(TopicConfig("orders", 2, 2, permission=4))
    assert not ways.sent(_frame(_PLAIN, e="1"))[0]
    topics.remove("orders")
    assert not ways.sent(_frame(_PLAIN, e="1"))[0]


def test_a_refused_message_has_the_answer_of_the_long_way(ways: _Ways) -> None:
    frame = _frame("KEYS\x01" + "k" * 40_000 + "\x02")
    taken, (answer,), found = ways.sent(frame)
    assert (taken, found) == (True, [])
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


@given(_properties)
def test_common_properties_are_stored_as_all_are(properties: str) -> None:
    text = properties.encode()
    found = CommonProperties(_ADDED).stored(text)
    assert found in (None, stored_properties(text + b"\x02" + _ADDED))
