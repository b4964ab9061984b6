"""Requests that are larger than any client's are refused with a code and a line of the log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakelog_broker.broker import Broker
from lakelog_broker.codes import LimitExceeded, ResponseCode
from lakelog_broker.grpc.clients import MAX_TOPICS, check_counts
from lakelog_broker.grpc.mapping import proto
from lakelog_broker.remoting.frame import MAX_JSON_BYTES, MAX_JSON_DEPTH
from lakelog_broker.remoting.groups import MAX_GROUPS, MAX_SUBSCRIPTIONS
from lakelog_broker.remoting.requests import RequestCode
from lakelog_broker.remoting.server import MAX_FIELDS
from plugins.broker.tests.support import Client, at_a_broker

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
