"""Requests that are larger than any client's are refused with a code and a line of the log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakelog_broker import state
from lakelog_broker.broker import Broker
from lakelog_broker.codes import LimitExceeded, ResponseCode
from lakelog_broker.grpc.clients import MAX_TOPICS, check_counts
from lakelog_broker.grpc.mapping import proto
from lakelog_broker.remoting.frame import MAX_JSON_BYTES, MAX_JSON_DEPTH
from lakelog_broker.remoting.groups import MAX_GROUPS, MAX_SUBSCRIPTIONS
from lakelog_broker.remoting.requests import RequestCode
from lakelog_broker.remoting.server import MAX_FIELDS
from plugins.broker.tests.support import Client, at_a_broker, dispatched

_REFUSED = ResponseCode.INVALID_PARAMETER


def _beat(**content: Any) -> bytes:
    return json.dumps({"clientID": "c1", **content}).encode()


def _nested(depth: int) -> bytes:
    """A heartbeat with so many arrays and objects in a row."""
    return b'{"clientID":"c1","more":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def _groups(first: int, count: int) -> bytes:
    return _beat(producerDataSet=[{"groupName": f"g{n}"} for n in range(first, first + count)])


def _subscribed(count: int) -> bytes:
    topics = [{"topic": f"t{each}"} for each in range(count)]
    return _beat(consumerDataSet=[{"groupName": "g", "subscriptionDataSet": topics}])


@pytest.mark.parametrize(
    ("at_limit", "beyond"),
    [
        (_beat(more="x" * (MAX_JSON_BYTES - 100)), _beat(more="x" * MAX_JSON_BYTES)),
        (_nested(MAX_JSON_DEPTH), _nested(MAX_JSON_DEPTH + 1)),
        (_nested(2), _nested(200_000)),
        (_groups(0, MAX_GROUPS), _groups(0, MAX_GROUPS + 1)),
        (_subscribed(MAX_SUBSCRIPTIONS), _subscribed(MAX_SUBSCRIPTIONS + 1)),
    ],
    ids=["bytes", "depth", "very deep", "groups", "subscriptions"],
)
@at_a_broker()
async def test_heartbeats_beyond_a_limit_are_refused(
    broker: Broker,
    client: Client,
    at_limit: bytes,
    beyond: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The connection goes on, and has one line in the log."""
    bodies = (at_limit, beyond, beyond, _beat())
    found = [(await client.call(RequestCode.HEART_BEAT, body)).code for body in bodies]
    assert found == [0, _REFUSED, _REFUSED, 0]
    assert len([each for each in caplog.messages if "request 34 is refused" in each]) == 1


@at_a_broker()
async def test_the_groups_of_all_heartbeats_count(broker: Broker, client: Client) -> None:
    """Groups that the client has left do not."""
    beat, more = RequestCode.HEART_BEAT, _groups(MAX_GROUPS, 1)
    assert (await client.call(beat, _groups(0, MAX_GROUPS))).code == 0
    assert (await client.call(beat, more)).code == _REFUSED
    leave = {"clientID": "c1", "producerGroup": "g0"}
    assert (await client.call(RequestCode.UNREGISTER_CLIENT, **leave)).code == 0
    assert (await client.call(beat, more)).code == 0


@at_a_broker()
async def test_the_fields_of_a_header_are_limited(broker: Broker, client: Client) -> None:
    fields = {f"more{each}": "x" for each in range(MAX_FIELDS + 1)}
    assert (await client.call(RequestCode.GET_MAX_OFFSET, b"", **fields)).code == _REFUSED
    assert await client.is_served()


def test_the_topics_of_a_grpc_client_are_limited() -> None:
    settings = proto("Settings")()
    for each in range(MAX_TOPICS):
        settings.publishing.topics.add().name = f"t{each}"
    check_counts(settings)
    settings.publishing.topics.add().name = "more"
    with pytest.raises(LimitExceeded, match="topics"):
        check_counts(settings)


@at_a_broker()
async def test_a_group_that_is_refused_keeps_no_other_from_a_heartbeat(
    broker: Broker, client: Client
) -> None:
    names = ["a/b", "x" * 256, None, "g" * 130, "g" * 250, "good"]
    consumers = [{"groupName": each} for each in names]
    answer = await client.beat(clientID="c", consumerDataSet=consumers)
    assert answer.code == ResponseCode.SUCCESS
    assert list(broker.members.groups) == names[3:]
    assert broker.topics.groups() == names[3:]
    assert broker.topics.find("%RETRY%" + "g" * 130) is not None


@pytest.mark.parametrize("client_id", [None, "", 7, "c" * 1025])
@at_a_broker()
async def test_an_illegal_client_id_joins_nothing(
    broker: Broker, client: Client, client_id: object
) -> None:
    answer = await client.beat(clientID=client_id, producerDataSet=[{"groupName": "g"}])
    assert answer.code == _REFUSED
    assert broker.members.producers == {}


@at_a_broker()
async def test_a_group_or_a_queue_that_cannot_be_is_noted_nowhere(
    broker: Broker, client: Client
) -> None:
    """Groups of pulls and commits, queues and offsets of commits, groups and topics of tools."""
    await client.send("orders")
    dispatched(broker.store)
    fields = {"topic": "orders", "queueId": "0", "commitOffset": "1", "consumerGroup": "g"}
    pull = {"queueOffset": "0", "maxMsgNums": "1", "sysFlag": "5", "subscription": "*"}
    long = {"consumerGroup": "g" * 256}
    wrong = ({"queueId": "8"}, {"queueId": "-1"}, {"commitOffset": str(1 << 63)}, long)
    for each in (*wrong, {"consumerGroup": ""}):
        answer = await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, **{**fields, **each})
        assert answer.code == _REFUSED, each
    assert (
        await client.call(RequestCode.PULL_MESSAGE, **{**fields, **pull, **long})
    ).code == _REFUSED
    beat = await client.beat(clientID="c", producerDataSet=[{"groupName": "g" * 256}])
    assert beat.code == ResponseCode.SUCCESS
    for name in (None, "a/b", "g" * 256):
        mode = {"topic": "orders", "consumerGroup": name, "mode": "POP"}
        answers = [
            await client.call(code, json.dumps(content).encode())
            for code, content in (
                (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"groupName": name}),
                (RequestCode.SET_MESSAGE_REQUEST_MODE, mode),
                (RequestCode.SET_MESSAGE_REQUEST_MODE, {**mode, "topic": name}),
            )
        ]
        assert [each.code for each in answers] == [_REFUSED] * 3
    assert broker.topics.groups() == []
    assert broker.offsets.groups() == set()
    assert broker.members.producers == {}
    assert await client.content(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    ok = await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)
    assert (ok.code, broker.offsets.groups()) == (ResponseCode.SUCCESS, {"g"})


@at_a_broker()
async def test_the_number_of_topics_and_groups_is_limited(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "MAX_NAMES", 2)
    beats = [{"groupName": each} for each in ("g", "h", "i")]
    await client.beat(clientID="c", consumerDataSet=beats)
    assert broker.topics.groups() == ["g", "h"]
    assert (await client.send("orders")).code == _REFUSED, "there are two topics of retries"
    assert [each for each in broker.topics if each.topic == "orders"] == []


@at_a_broker()
async def test_values_of_the_name_server_are_limited(broker: Broker, client: Client) -> None:
    for value, code in (("x" * 60_000, ResponseCode.SUCCESS), ("x" * 70_000, _REFUSED)):
        fields = {"namespace": "n", "key": "k", "value": value}
        assert (await client.call(RequestCode.PUT_KV_CONFIG, **fields)).code == code
