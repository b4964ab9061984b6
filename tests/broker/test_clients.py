"""RocketMQ's Java client produces and consumes with the same results from both brokers."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from lakelog_broker.codes import RequestCode as Code
from lakelog_broker.remoting.frame import RemotingCommand, decode_frame, encode_frame
from lakelog_replication.address import Address
from tests.broker.later import java, lakelogs_broker, rocketmqs_broker

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]
_SETTINGS: Final[dict[str, Any]] = {
    "enablePropertyFilter": "true",
    "defaultTopicQueueNums": 8,
    # the defaults of lakelog
    "mappedFileSizeCommitLog": 1 << 26,
}


@attrs.frozen
class Both:
    """The addresses of a name server and of its broker."""

    names: Address
    broker: Address


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Both]]:
    """Run both kinds of broker."""
    homes = {each: tmp_path_factory.mktemp(each) for each in ("lakelog", "rocketmq")}
    with (
        lakelogs_broker(homes["lakelog"]) as ours,
        rocketmqs_broker(homes["rocketmq"], **_SETTINGS) as theirs,
    ):
        yield {
            "lakelog": Both(ours.server, ours.server),
            "rocketmq": Both(theirs.server, theirs.process.client),
        }


@contextmanager
def outcomes(server: Address, home: Path) -> Iterator[dict[str, str]]:
    """Run the program during the block; yields the outcomes by scenario, filled at its end."""
    found: dict[str, str] = {}
    with subprocess.Popen(
        java("Clients", str(server), home=home), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield found
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith('{"scenario"'):
                    each = json.loads(line)
                    found[each["scenario"]] = each["outcome"]
            assert process.wait() == 0
        finally:
            process.kill()


def test_java_clients_have_the_same_outcomes(servers: dict[str, Both], tmp_path: Path) -> None:
    with (
        outcomes(servers["lakelog"].names, tmp_path / "1") as ours,
        outcomes(servers["rocketmq"].names, tmp_path / "2") as theirs,
    ):
        pass  # both programs run at the same time
    assert len(theirs) > 40
    assert [name for name, outcome in theirs.items() if "TimeoutException" in outcome] == []
    assert ours == theirs


def asked(broker: Address, code: int, fields: dict[str, object], body: bytes = b"") -> str:
    """Send a request; return the response's code and fields, without ids and times."""
    texts = {name: str(value) for name, value in fields.items()}
    with socket.create_connection((broker.host, broker.port), 60) as connection:
        connection.sendall(encode_frame(RemotingCommand(code, 1, 0, texts, body)))
        stream = connection.makefile("rb")
        size = int.from_bytes(stream.read(4), "big")
        found = decode_frame(memoryview(stream.read(size)))
    ignored = {"msgId", "transactionId", "indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}
    ignored |= {"groupSysFlag", "topicSysFlag", "forbiddenType"}  # zeros of pulls
    known = {name: value for name, value in found.fields.items() if name not in ignored}
    return f"{found.code} {dict(sorted(known.items()))} {bool(found.body)}"


def send(topic: str, queue: int = 0, **more: object) -> tuple[int, dict[str, object], bytes]:
    fields = {
        "a": "raw",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue,
        "f": 0,
        "g": time.time_ns() // 1_000_000,
        "h": 0,
        "i": "TAGS\x01A\x02",
        "j": 0,
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }
    return Code.SEND_MESSAGE_V2, {**fields, **more}, b"raw"


def pull(topic: str, offset: int, queue: int = 0, **more: object) -> tuple[int, dict[str, object]]:
    fields = {
        "consumerGroup": "RawGroup",
        "topic": topic,
        "queueId": queue,
        "queueOffset": offset,
        "maxMsgNums": 4,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    return Code.PULL_MESSAGE, {**fields, **more}


def topic(name: str, permission: int) -> tuple[int, dict[str, object]]:
    fields = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": 2,
        "writeQueueNums": 2,
        "perm": permission,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    }
    return Code.UPDATE_AND_CREATE_TOPIC, fields


def offsets(code: int, name: str, queue: int = 0, **more: object) -> tuple[int, dict[str, object]]:
    return code, {"consumerGroup": "RawGroup", "topic": name, "queueId": queue, **more}


# Left out, because lakelog's broker is stricter: sends to its own topics of timers and revived
# messages (``rmq_sys_``), sends to a topic without write permission, pulls with an invalid
# expression, and the code for a damaged batch.
RAW: Final[list[tuple[Any, ...]]] = [
    topic("Raw", 6),
    topic("RawRead", 4),
    topic("RawWrite", 2),
    (
        Code.HEART_BEAT,
        {},
        json.dumps(
            {
                "clientID": "raw@1",
                "producerDataSet": [],
                "consumerDataSet": [
                    {
                        "groupName": "RawGroup",
                        "consumeType": "CONSUME_ACTIVELY",
                        "messageModel": "CLUSTERING",
                        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                        "unitMode": False,
                        "subscriptionDataSet": [],
                    }
                ],
            }
        ).encode(),
    ),
    *(send("Raw") for _ in range(6)),
    send("Raw", 2),
    send("Raw", 9),
    send("RawWrite"),
    send("RawNone", c="nothing"),
    send("a b"),
    send(""),
    send("x" * 128),
    send("SCHEDULE_TOPIC_XXXX"),
    send("SELF_TEST_TOPIC"),
    send("RMQ_SYS_TRACE_TOPIC"),
    *(pull("Raw", each) for each in (0, 5, 6, 7, 8, 100, -1)),
    *(pull("Raw", each, 1) for each in (0, 1, 5)),
    pull("Raw", 0, 2),
    pull("Raw", 0, -1),
    pull("RawWrite", 0),
    pull("RawRead", 0),
    pull("RawNone", 0),
    pull("Raw", 0, maxMsgNums=0),
    pull("Raw", 0, subscription="B"),
    pull("Raw", 0, sysFlag=0),
    pull("Raw", 0, consumerGroup="RawStranger", sysFlag=0),
    pull("Raw", 0, consumerGroup="RawStranger"),
    offsets(Code.QUERY_CONSUMER_OFFSET, "Raw"),
    offsets(Code.QUERY_CONSUMER_OFFSET, "Raw", setZeroIfNotFound="false"),
    offsets(Code.QUERY_CONSUMER_OFFSET, "RawNone"),
    offsets(Code.UPDATE_CONSUMER_OFFSET, "Raw", commitOffset=3),
    offsets(Code.QUERY_CONSUMER_OFFSET, "Raw"),
    offsets(Code.UPDATE_CONSUMER_OFFSET, "RawNone", commitOffset=3),
    offsets(Code.GET_MAX_OFFSET, "Raw"),
    offsets(Code.GET_MIN_OFFSET, "Raw"),
    offsets(Code.GET_MAX_OFFSET, "Raw", 7),
    offsets(Code.GET_MAX_OFFSET, "RawNone"),
    offsets(Code.SEARCH_OFFSET_BY_TIMESTAMP, "Raw", timestamp=-1),
    offsets(Code.SEARCH_OFFSET_BY_TIMESTAMP, "Raw", timestamp=10**10),
    offsets(Code.SEARCH_OFFSET_BY_TIMESTAMP, "Raw", timestamp=(1 << 63) - 1),
    offsets(Code.SEARCH_OFFSET_BY_TIMESTAMP, "RawNone", timestamp=5),
    offsets(Code.GET_EARLIEST_MSG_STORETIME, "RawRead"),
    offsets(Code.GET_EARLIEST_MSG_STORETIME, "RawNone"),
    (Code.VIEW_MESSAGE_BY_ID, {"offset": 1 << 40}),
    (Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "RawStranger"}),
    (Code.UNREGISTER_CLIENT, {"clientID": "nobody", "consumerGroup": "RawStranger"}),
    (9999, {}),
]


def test_raw_requests_have_the_same_outcomes(servers: dict[str, Both]) -> None:
    different = []
    for request in RAW:
        ours, theirs = (asked(servers[each].broker, *request) for each in ("lakelog", "rocketmq"))
        if ours != theirs:
            different.append((*request[:2], f"lakelog  {ours}", f"rocketmq {theirs}"))
    assert not different, "\n".join("\n    ".join(map(str, each)) for each in different)
