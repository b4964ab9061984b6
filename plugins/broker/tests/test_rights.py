"""Each request of both protocols is refused to all but the users of everything that it names.

The walk sends all request codes that RocketMQ 5.5.1 defines and all calls of its gRPC service.
A refused request stores nothing and sends nothing.
"""

from __future__ import annotations

import hmac
import json
import logging
import zlib
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs
import grpc.aio
import pytest

from lakelog_broker.appending import HALF_TOPIC
from lakelog_broker.broker import Broker
from lakelog_broker.codes import ResponseCode
from lakelog_broker.grpc.mapping import CODES, SERVICE, proto, transaction_id
from lakelog_broker.remoting.requests import REQUESTS, RequestCode
from lakelog_broker.rights import NAMES, Named, NameKind
from plugins.broker.tests.support import (
    PATIENCE_S,
    Client,
    call_as,
    dispatched,
    put,
    run_at_a_broker,
)

_DEFINED: Final = """10-15 17-18 21-23 25-43 45-47 60-61 100-106 200-217 219-225 300-329 343 345
351-355 361 370 400-402 513 901-908 1001-1013 2001-2004 3001-3010 5001-5003 200050-200056
200070-200079 200151"""
"""The values of ``RequestCode`` of RocketMQ 5.5.1."""
_REFUSED: Final = {ResponseCode.NO_PERMISSION, CODES["UNAUTHORIZED"], CODES["FORBIDDEN"]}
_NOT_SERVED: Final = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
_ALWAYS_REFUSED: Final = (RequestCode.UPDATE_BROKER_CONFIG,)
_ACCOUNTS: Final = """
[[accounts]]
access_key = "root-key"
secret_key = "root-key"
admin = true

[[accounts]]
access_key = "nobody"
secret_key = "nobody"

[[accounts]]
access_key = "ann-key"
secret_key = "ann-key"
topic_perms = { orders = "PUB|SUB" }
group_perms = { readers = "SUB" }

[[accounts]]
access_key = "eve-key"
secret_key = "eve-key"
topic_perms = { other = "PUB|SUB" }
group_perms = { others = "SUB" }

[[accounts]]
access_key = "sub-key"
secret_key = "sub-key"
topic_perms = { other = "SUB" }
group_perms = { others = "SUB" }
"""
_FIELDS: Final = {
    "a": "shop",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1",
    "h": "0",
    "i": "",
    "j": "0",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "bornTimestamp": "1",
    "flag": "0",
    "properties": "",
    "queueId": "0",
    "queueOffset": "0",
    "commitOffset": "1",
    "maxMsgNums": "1",
    "sysFlag": "5",
    "subscription": "*",
    "timestamp": "0",
    "key": "k",
    "maxNum": "1",
    "beginTimestamp": "0",
    "endTimestamp": "9999999999999",
    "delayLevel": "0",
    "commitOrRollback": "8",
    "invisibleTime": "60000",
    "pollTime": "0",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "namespace": "n",
    "value": "v",
    "producerGroup": "shop",
}
"""Fields that are no names of the table, for any request."""


@attrs.frozen
class Owner:
    """A user, and what it may name."""

    key: str
    client_id: str
    topic: str
    group: str
    producers: str
    message: str
    half: tuple[int, int]

    def name(self, kind: NameKind) -> Any:
        return {
            NameKind.TOPIC: self.topic,
            NameKind.GROUP: self.group,
            NameKind.PRODUCERS: self.producers,
            NameKind.CLIENT: self.client_id,
            NameKind.MESSAGE: self.message,
            NameKind.TRANSACTION: self.half,
        }[kind]


def set_at(content: Any, path: list[str], value: Any) -> None:
    """Set the value at a path of a message or of dictionaries; ``*`` is the first element."""
    step, *rest = path
    if isinstance(content, dict):
        if not rest:
            content[step] = value
        elif rest[0] == "*":
            set_at(content.setdefault(step, [{}])[0], rest[1:], value)
        else:
            set_at(content.setdefault(step, {}), rest, value)
    elif rest and rest[0] == "*":
        many = getattr(content, step)
        one = many[0] if many else many.add()
        if rest[1:]:
            set_at(one, rest[1:], value)
        else:
            one.name = value
    elif rest:
        set_at(getattr(content, step), rest, value)
    elif hasattr(getattr(content, step), "resource_namespace"):
        getattr(content, step).name = value
    else:
        setattr(content, step, value)


@attrs.frozen
class Walker:
    """Sends the same request to both ports with names of any owner."""

    client: Client
    channel: Any

    async def remoting(self, key: str, code: int, names: list[tuple[Named, Any]]) -> int:
        parts: dict[str, Any] = {"fields": dict(_FIELDS), "body": {}}
        for named, value in names:
            if named.kind is NameKind.TRANSACTION:
                for field, number in zip(
                    ("commitLogOffset", "tranStateTableOffset"), value, strict=True
                ):
                    parts["fields"][field] = str(number)
            else:
                set_at(parts, named.path.split("."), value)
        body = json.dumps(parts["body"]).encode()
        return await call_as(self.client, key, code, parts["fields"], body)

    async def grpc(self, key: str, method: Any, names: list[tuple[Named, Any]]) -> int:
        request = proto(method.input_type.name)()
        metadata = [("x-mq-client-id", "new@1")]
        for named, value in names:
            text = transaction_id(*value) if named.kind is NameKind.TRANSACTION else value
            if named.kind is NameKind.CLIENT:
                metadata = [("x-mq-client-id", value)]
            else:
                set_at(request, named.path.split(".")[1:], text)
        if key:
            stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
            signed = hmac.digest(key.encode(), stamp.encode(), "sha1").hex()
            text = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, "
            metadata += [("authorization", f"{text}Signature={signed}"), ("x-mq-date-time", stamp)]
        response = proto(method.output_type.name)
        forms = request.SerializeToString, response.FromString
        path = f"/{SERVICE.full_name}/{method.name}"
        if method.name == "Telemetry":
            stream = self.channel.stream_stream(path, response_deserializer=forms[1])
            found = stream(_once(forms[0]()), metadata=metadata, timeout=PATIENCE_S)
        elif method.server_streaming:
            call = self.channel.unary_stream(path, response_deserializer=forms[1])
            found = call(forms[0](), metadata=metadata, timeout=PATIENCE_S)
        else:
            call = self.channel.unary_unary(path, response_deserializer=forms[1])
            answer = await call(forms[0](), metadata=metadata, timeout=PATIENCE_S)
            return int(answer.status.code)
        first = await found.read()
        found.cancel()
        return int(first.status.code)


async def _once(body: bytes) -> Any:
    yield body


def _all_codes() -> Iterator[int]:
    for part in _DEFINED.split():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _state(broker: Broker) -> dict[str, Any]:
    """What a request can change: the files, the log, and the tables in memory."""
    files = {
        str(path.relative_to(broker.path)): zlib.crc32(path.read_bytes())
        for path in sorted(broker.path.rglob("*"))
        if path.is_file() and path.name != "checkpoint" and path.parts[-2] != "lakelog"
    }
    members = broker.members
    return {
        **files,
        "end": broker.store.max_offset,
        "topics": [each.topic for each in broker.topics],
        "groups": broker.topics.groups(),
        "offsets": {key: dict(table) for key, table in broker.offsets._offsets.items()},
        "members": {name: sorted(each.members) for name, each in members.groups.items()},
        "producers": {name: sorted(each) for name, each in members.producers.items()},
        "locks": dict(members._locks),
        "clients": {each: claim.count for each, claim in members._claims.items()},
        "transactions": len(broker.transactions),
    }


async def _owner(broker: Broker, client: Client, name: str, topic: str, group: str) -> Owner:
    key, shop = f"{name}-key", f"{name}-shop"
    broker.topics.create(topic, 2)
    put(broker, b"x", topic)
    put(broker, b"half", topic, TRAN_MSG="true", PGROUP=shop, UNIQ_KEY=f"half-of-{name}")
    *_, half = broker.store.read(HALF_TOPIC, 0)
    (message,) = broker.store.get(topic, 0, 0, 1).messages
    consumer = {"groupName": group, "subscriptionDataSet": [{"topic": topic, "subString": "*"}]}
    beat = {"clientID": f"{name}@1", "consumerDataSet": [consumer]}
    beat["producerDataSet"] = [{"groupName": shop}]
    assert await call_as(client, key, 34, {}, json.dumps(beat).encode()) == 0
    places = str(message.physical_offset), (half.physical_offset, half.queue_offset)
    return Owner(key, f"{name}@1", topic, group, shop, *places)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users.toml"
    path.write_text(_ACCOUNTS)
    return path


def test_all_requests_are_refused_to_all_but_the_users_of_their_names(
    tmp_path: Path, users: Path
) -> None:
    counts = Counter[str]()

    async def work(broker: Broker, client: Client) -> None:
        anns, eves = await Client.to(broker), await Client.to(broker)
        ann = await _owner(broker, anns, "ann", "orders", "readers")
        eve = await _owner(broker, eves, "eve", "other", "others")
        dispatched(broker.store)
        async with grpc.aio.insecure_channel(broker.grpc_address) as channel:
            walker = Walker(client, channel)
            walked = [*_walks(walker)]
            counts["requests"] = len(walked)
            for each, owner in ((anns, ann), (eves, eve)):
                await _requests_to(each, owner)  # of the own heartbeat
            await broker.save()  # which else comes every few seconds
            before = _state(broker)
            for name, send in walked:
                row = NAMES.get(name, ())
                for who, names in _wrong(row, ann, eve, is_open=name in NAMES):
                    found = await send(who, names)
                    assert found in _REFUSED, (name, who, names, found)
                    counts["refused"] += 1
            after = _state(broker)
            assert [each for each in after if after[each] != before.get(each)] == []
            for each, owner in ((anns, ann), (eves, eve)):
                assert await _requests_to(each, owner) == 0
            for name, send in walked:
                if name in NAMES:
                    names = [(each, ann.name(each.kind)) for each in NAMES[name]]
                    found = await send(ann.key, names)
                    assert found not in _REFUSED, (name, found)
                    counts["allowed"] += 1
            for name, send in walked:
                if name not in NAMES:
                    found = await send("root-key", [])
                    is_refused = name in {each.name for each in _ALWAYS_REFUSED}
                    assert (found in _REFUSED) == is_refused, (name, found)
                    is_served = found not in (_NOT_SERVED, CODES["NOT_IMPLEMENTED"])
                    counts["for administrators" if is_served else "not served"] += 1
        anns.close()
        eves.close()

    run_at_a_broker(tmp_path, work, users=users, grpc_port=0, transaction_timeout_s=3600)
    logging.getLogger(__name__).info("requests: %s", dict(counts))
    assert NAMES.keys() <= {each.name for each in (*REQUESTS.values(), *SERVICE.methods)}
    assert counts["requests"] == 166 + len(SERVICE.methods)
    assert counts["allowed"] == len(NAMES)


def _walks(walker: Walker) -> Iterator[tuple[str, Any]]:
    """The name of each request, and a function that sends it as a user with names."""
    for code in _all_codes():
        name = REQUESTS[code].name if code in REQUESTS else str(code)
        yield name, lambda key, names, code=code: walker.remoting(key, code, names)
    for method in SERVICE.methods:
        yield method.name, lambda key, names, each=method: walker.grpc(key, each, names)


def _wrong(
    row: tuple[Named, ...], ann: Owner, eve: Owner, *, is_open: bool
) -> Iterator[tuple[str, list[tuple[Named, Any]]]]:
    """No user, one without rights, and another one that names one thing of ann's."""
    anns = [(each, ann.name(each.kind)) for each in row]
    yield "", anns
    if row or not is_open:
        yield "nobody", anns
    if not is_open:
        yield ann.key, []
    for wrong in row:
        who = "sub-key" if wrong.kind is NameKind.PRODUCERS else eve.key
        kinds = NameKind.PRODUCERS, NameKind.CLIENT
        mine = [each for each in row if who == eve.key or each.kind not in kinds]
        names = {each: eve.name(each.kind) for each in mine if each != wrong}
        names[wrong] = ann.name(wrong.kind)  # the last of those that exclude each other
        if who != eve.key:
            names |= {each: "sub@1" for each in row if each.kind is NameKind.CLIENT}
        yield who, list(names.items())


async def _requests_to(client: Client, owner: Owner) -> int:
    """The number of requests that the broker has sent to a client since the last call."""
    former = client.skipped
    assert await call_as(client, owner.key, RequestCode.GET_BROKER_CLUSTER_INFO, {}) == 0
    return client.skipped - former
