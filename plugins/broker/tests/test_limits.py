"""Requests that are larger than any client's are refused with a code and a line of the log."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from lakelog_broker.bodies import MAX_JSON_BYTES, MAX_JSON_DEPTH
from lakelog_broker.codes import RequestCode, ResponseCode
from lakelog_broker.grpc.clients import MAX_TOPICS, _check_counts
from lakelog_broker.grpc.protos import proto
from lakelog_broker.grpc.statuses import IllegalRequest
from lakelog_broker.remoting.connection import MAX_FIELDS
from lakelog_broker.remoting.handlers.clients import MAX_GROUPS, MAX_SUBSCRIPTIONS
from plugins.broker.tests.support import Client, served


def _beat(**content: Any) -> bytes:
    return json.dumps({"clientID": "c1", **content}).encode()


def _nested(depth: int) -> bytes:
    """A heartbeat with so many arrays and objects in a row."""
    return b'{"clientID":"c1","more":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def _groups(first: int, count: int) -> list[dict[str, str]]:
    return [{"groupName": f"g{each}"} for each in range(first, first + count)]


def _subscribed(count: int) -> bytes:
    topics = [{"topic": f"t{each}"} for each in range(count)]
    return _beat(consumerDataSet=[{"groupName": "g", "subscriptionDataSet": topics}])


_AT_LIMIT = (
    _beat(more="x" * (MAX_JSON_BYTES - 100)),
    _nested(MAX_JSON_DEPTH),
    _beat(producerDataSet=_groups(0, MAX_GROUPS)),
    _subscribed(MAX_SUBSCRIPTIONS),
)
_BEYOND = (
    _beat(more="x" * MAX_JSON_BYTES),
    _nested(MAX_JSON_DEPTH + 1),
    _nested(200_000),
    _beat(producerDataSet=_groups(0, MAX_GROUPS + 1)),
    _subscribed(MAX_SUBSCRIPTIONS + 1),
)


async def _beats(folder: Path, *bodies: bytes) -> list[int]:
    async with served(folder) as broker:
        client = await Client.to(broker)
        found = [(await client.call(RequestCode.HEART_BEAT, body)).code for body in bodies]
        client.close()
        return found


@pytest.mark.parametrize("body", _AT_LIMIT, ids=range(len(_AT_LIMIT)))
def test_heartbeats_at_a_limit_are_taken(tmp_path: Path, body: bytes) -> None:
    assert asyncio.run(_beats(tmp_path, body)) == [0]


@pytest.mark.parametrize("body", _BEYOND, ids=range(len(_BEYOND)))
def test_heartbeats_beyond_a_limit_are_refused(
    tmp_path: Path, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection goes on, and has one line in the log."""
    refused = ResponseCode.INVALID_PARAMETER
    assert asyncio.run(_beats(tmp_path, body, body, _beat())) == [refused, refused, 0]
    lines = [each for each in caplog.messages if "request 34 is refused" in each]
    assert len(lines) == 1


def test_the_groups_of_all_heartbeats_count(tmp_path: Path) -> None:
    """Groups that the client has left do not."""

    async def main() -> None:
        async with served(tmp_path) as broker:
            client, beat = await Client.to(broker), RequestCode.HEART_BEAT
            full, more = _beat(producerDataSet=_groups(0, MAX_GROUPS)), _groups(MAX_GROUPS, 1)
            assert (await client.call(beat, full)).code == 0
            refused = await client.call(beat, _beat(producerDataSet=more))
            assert refused.code == ResponseCode.INVALID_PARAMETER
            leave = {"clientID": "c1", "producerGroup": "g0"}
            assert (await client.call(RequestCode.UNREGISTER_CLIENT, **leave)).code == 0
            assert (await client.call(beat, _beat(producerDataSet=more))).code == 0
            client.close()

    asyncio.run(main())


def test_the_fields_of_a_header_are_limited(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as broker:
            client = await Client.to(broker)
            fields = {f"more{each}": "x" for each in range(MAX_FIELDS + 1)}
            found = await client.call(RequestCode.GET_MAX_OFFSET, b"", **fields)
            assert found.code == ResponseCode.INVALID_PARAMETER
            assert (await client.send("orders")).code == ResponseCode.SUCCESS
            client.close()

    asyncio.run(main())


def test_the_topics_of_a_grpc_client_are_limited() -> None:
    settings = proto("Settings")()
    for each in range(MAX_TOPICS):
        settings.publishing.topics.add().name = f"t{each}"
    _check_counts("c1", settings)
    settings.publishing.topics.add().name = "more"
    with pytest.raises(IllegalRequest, match="topics"):
        _check_counts("c1", settings)
