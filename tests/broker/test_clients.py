"""RocketMQ's Java programs have the same results with lakelog's broker and with RocketMQ's 5.3.3.

One broker of each kind serves all tests; ``mqadmin`` comes first, while they are empty.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

import lakelog
from lakelog_broker.remoting.frame import RemotingCommand, decode_frame, encode_frame
from lakelog_broker.remoting.requests import RequestCode as Code
from lakelog_broker.settings import BrokerSettings
from lakelog_replication.remoting import call
from lakelog_replication.settings import Address
from plugins.broker.tests.serving import served
from tests.broker.later import Client, java, java_client, rocketmqs_broker
from tests.replication.masterbroker import eventually
from tests.support import required

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]
_PATIENCE_S: Final = 500
_SEGMENT: Final = 1 << 26


@attrs.frozen
class Broker:
    names: Address
    broker: Address


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Broker]]:
    ours, theirs = (tmp_path_factory.mktemp(each) for each in ("lakelog", "rocketmq"))
    checks = {"transaction_timeout_s": 1, "transaction_check_interval_s": 1}
    with (
        lakelogs_broker_here(ours, cluster="Tests", **checks) as lakelogs,
        rocketmqs_broker(
            theirs, defaultTopicQueueNums=8, mappedFileSizeCommitLog=_SEGMENT
        ) as rocketmqs,
    ):
        names = rocketmqs.server  # the broker listens before it has registered there
        eventually(lambda: b"broker-a" in call(names, Code.GET_BROKER_CLUSTER_INFO).body)
        yield {
            "lakelog": Broker(lakelogs, lakelogs),
            "rocketmq": Broker(names, rocketmqs.process.client),
        }


@contextmanager
def lakelogs_broker_here(home: Path, **settings: Any) -> Iterator[Address]:
    with (
        lakelog.open(home / "store", segment_size_bytes=_SEGMENT) as store,
        served(store, BrokerSettings(port=0, **settings)) as running,
    ):
        yield Address.parse(running.address)


def run(program: str, *arguments: object, home: Path, flags: Sequence[str] = ()) -> str:
    home.mkdir(exist_ok=True)
    words = java(program, *map(str, arguments), home=home, flags=flags)
    done = subprocess.run(
        words, cwd=home, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return done.stdout


# --- mqadmin ---

_COMMANDS: Final = """
clusterList
updateTopic -b {broker} -t orders -r 4 -w 4
updateTopic -b {broker} -t typed -r 2 -w 2 -a +message.type=FIFO
topicList
topicList -c
topicRoute -t orders
topicClusterList -t orders
topicStatus -t orders
updateSubGroup -b {broker} -g readers -s true -m false -r 3 -q 2
getConsumerConfig -g readers
consumerProgress -g readers
consumerConnection -g readers
producerConnection -g sellers -t orders
send
topicStatus -t orders
members
consumerConnection -g readers
producerConnection -g sellers -t orders
producer -b {broker}
consumerStatus -g readers
consumerStatus -g readers -i {client}
getConsumerStatus -g readers -t orders
consumerProgress
consumerProgress -g readers
brokerConsumeStats -b {broker}
queryMsgById -t orders -i {place}
queryMsgById -t orders -i {place} -g readers -d {client}
queryMsgByUniqueKey -t orders -i {id}
queryMsgByUniqueKey -t orders -i {id} -g readers -d {client}
queryMsgByKey -t orders -k key1
queryMsgByOffset -t orders -b broker-a -i 0 -o 0
queryCq -t orders -q 0 -i 0 -c 5 -b {broker}
queryCq -t orders -q 0 -i 0 -c 5 -b {broker} -g readers
printMsg -t orders -d true
printMsgByQueue -t orders -a broker-a -i 0 -p true
statsAll -t orders
leave
resetOffsetByTime -g readers -t orders -s 0
consumerProgress -g readers
updateSubGroup -b {broker} -g copies
cloneGroupOffset -s readers -d copies -t orders
consumerProgress -g copies
skipAccumulatedMessage -g readers -t orders
sendMessage -t orders -p body -k key2 -c TagB -b broker-a -i 1
consumeMessage -t orders -g peeking
checkMsgSendRT -t orders -a 3 -s 10
allocateMQ -t orders -i 10.0.0.1,10.0.0.2
setConsumeMode -b {broker} -t orders -g readers -m POP -q 2
brokerStatus -b {broker}
getBrokerConfig -b {broker}
updateBrokerConfig -b {broker} -k defaultTopicQueueNums -v 8
getNamesrvConfig
updateKvConfig -s space -k name -v value
deleteKvConfig -s space -k name
updateTopicPerm -b {broker} -t orders -p 4
topicRoute -t orders
deleteSubGroup -b {broker} -g readers
getConsumerConfig -g readers
deleteTopic -c Tests -t orders
topicRoute -t orders
topicStatus -t none
""".strip()

_STEPS: Final = ("send", "members", "leave")
_NORMAL: Final = (
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\b[0-9A-F]{32,}\b", "ID"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?|\b(\d{17}|\d{14}|\d{13})\b", "TIME"),
    (r"(Lambda\$\d+/0x[0-9a-f]+)?@[0-9a-f]{5,8}\b", "OBJECT"),
    (r"\d+\.\d+(E-?\d+)?", "FRACTION"),
    (r"spentTimeMills=\d+", "spentTimeMills"),
    (r"\]MessageTrack", "]\nMessageTrack"),
)
"""Replacements of values that depend on machine or time, for all commands."""
_CHANGES: Final = {
    # A consumer gets the offset 0 of an empty queue at once, not by a further request.
    "consumerStatus": (
        (r"commitOffset=-1", "commitOffset=0"),
        (r"(broker-a +\d +)-1 *$", r"\g<1>0"),
        (r"(PullTime|ConsumeTime|PullRT|ConsumeRT|TPS|pullRT|consumeRT)\S* *[:=].*", r"\1"),
    ),
    "checkMsgSendRT": ((r"true +\d+", "true"),),
    # timers are up to a second behind
    "clusterList": ((r"\(0,0ms.*?\)", "LOAD"), (r"\b\d+-\d+\(", "TIMERS(")),
    "brokerStatus": ((r"^(\w+?)(_/\S+)? *: .*", r"\1"),),  # names of figures
    "getBrokerConfig": ((r"^(listenPort|storePathRootDir) .*", r"\1"),),
    "getNamesrvConfig": ((r"^(listenPort) .*", r"\1"),),
    # RocketMQ counts up to 10 seconds later
    "statsAll": ((r"^(orders +readers +\d+) .*", r"\1"),),
}
"""Further replacements, by command."""
_NO_OUTPUT: Final = (
    r"at \S+\(|\.\.\. \d+ more|For more information|See https|\d\d:\d\d:\d\d[.,]"
    r"|\d\d:\d\d:FRACTION"
)
"""Lines of Java's stack traces and of the log."""

_PHANTOM: Final = r"MessageTrack \[consumerGroup=orders, trackType=UNKNOWN.*"
"""RocketMQ lists a group with the name of the topic, which was never made."""
_RETRIES: Final = r"%RETRY%readers .*"
"""The offset 0 of an empty queue is committed by lakelog's members only."""
_SETTING: Final = r"\w+ =.*"
"""A setting without a meaning for lakelog."""
_ONLY_THEIRS: Final = {
    # topics of RocketMQ's own work exist from its start
    "topicList": r"(Tests )?(RMQ_SYS_\w+|BenchmarkTest|OFFSET_MOVED_EVENT|SELF_TEST_TOPIC"
    r"|SCHEDULE_TOPIC_XXXX|rmq_sys_\S+)",
    "statsAll": r"orders orders .*",
    "queryMsgById": _PHANTOM,
    "queryMsgByUniqueKey": _PHANTOM,
    "queryMsgByOffset": _PHANTOM,
    "consumerProgress": _RETRIES,
    # no thread pools, no times of single puts
    "brokerStatus": r"\w+ThreadPoolQueueCapacity|dispatchMaxBuffer|remainTransientStoreBufferNumbs"
    r"|getMessageEntireTimeMax|putLatency\w+|putMessageDistributeTime"
    r"|putMessageEntireTimeMax|putMessageFailedTimes",
    "getBrokerConfig": _SETTING,
    "getNamesrvConfig": _SETTING,
    "updateBrokerConfig": r"update broker config success, ADDRESS",
}
_ONLY_OURS: Final = {
    "consumerProgress": _RETRIES,
    "brokerStatus": r"getTransferedTps",  # a name that RocketMQ 4 reads
    # settings are fixed while lakelog's broker runs
    "updateBrokerConfig": r".*UpdateBrokerConfigSubCommand command failed"
    r"|Caused by: .*CODE: 16 DESC: the settings.*",
}
"""Lines that one of the brokers alone may print, by command."""


def test_outputs_of_mqadmin(brokers: dict[str, Broker], tmp_path: Path) -> None:
    """The outputs are equal except for values that depend on machine or time."""
    commands = tmp_path / "commands"
    commands.write_text(_COMMANDS)

    def printed(kind: str) -> list[tuple[str, str]]:
        of = brokers[kind]
        return [*_blocks(run("Admin", commands, of.names, of.broker, home=tmp_path / kind))]

    with ThreadPoolExecutor() as threads:
        ours, theirs = threads.map(printed, ("lakelog", "rocketmq"))
    assert [command for command, _ in ours] == [
        each for each in _COMMANDS.splitlines() if each not in _STEPS
    ]
    differences = [
        f"{command}\n  only lakelog: {only_ours}\n  only RocketMQ: {only_theirs}"
        for (command, mine), (_, yours) in zip(ours, theirs, strict=True)
        for only_ours, only_theirs in [_difference(command.split(maxsplit=1)[0], mine, yours)]
        if only_ours or only_theirs
    ]
    assert not differences, "\n".join(differences)


def _blocks(output: str) -> Iterator[tuple[str, str]]:
    for block in re.split(r"^### ", output, flags=re.MULTILINE)[1:]:
        command, _, printed = block.partition("\n")
        yield command, printed


def _lines(name: str, printed: str) -> Counter[str]:
    for pattern, normal in (*_NORMAL, *_CHANGES.get(name, ())):
        printed = re.sub(pattern, normal, printed, flags=re.MULTILINE)
    found = (re.sub(r"\s+", " ", line).strip() for line in printed.splitlines())
    return Counter(line for line in found if line and not re.match(_NO_OUTPUT, line))


def _difference(name: str, ours: str, theirs: str) -> tuple[list[str], list[str]]:
    """Return the lines that only lakelog, and only RocketMQ printed, without allowed ones."""
    mine, yours = _lines(name, ours), _lines(name, theirs)
    return (
        [line for line in mine - yours if not re.fullmatch(_ONLY_OURS.get(name, "-"), line)],
        [line for line in yours - mine if not re.fullmatch(_ONLY_THEIRS.get(name, "-"), line)],
    )


# --- producers and consumers ---


def test_java_clients_have_the_same_outcomes(brokers: dict[str, Broker], tmp_path: Path) -> None:
    def outcomes(kind: str) -> dict[str, str]:
        lines = run("Clients", brokers[kind].names, home=tmp_path / kind).splitlines()
        found = [json.loads(line) for line in lines if line.startswith('{"scenario"')]
        return {each["scenario"]: each["outcome"] for each in found}

    with ThreadPoolExecutor() as threads:  # both programs run at the same time
        ours, theirs = threads.map(outcomes, ("lakelog", "rocketmq"))
    assert len(theirs) > 40
    assert [name for name, outcome in theirs.items() if "TimeoutException" in outcome] == []
    assert ours == theirs


EARLIEST_MS = {"delay-1": 1_000, "timer-1500": 1_500}
COMES = {"plain", "delay-1", "timer-1500", "ended-commit", "asked-commit"}
NEVER = {"ended-rollback", "asked-rollback", "recalled"}


def outcome(client: Client) -> dict[str, Any]:
    """Send one message of each kind; return the outcomes."""
    client.create_topic("plain")
    client.do("consume")
    client.got({"plain"})
    sent = {
        body: client.do(f"{command} {body}")
        for command, body in (
            ("delay 1", "delay-1"),
            ("timer 1500", "timer-1500"),
            ("timer 3000", "recalled"),
            ("transaction commit", "ended-commit"),
            ("transaction rollback", "ended-rollback"),
            ("transaction unknown", "asked-commit"),
            ("transaction unknown", "asked-rollback"),
        )
    }
    recalled = client.do(f"recall {sent['recalled']['handle']} recalled")
    errors = [
        client.do(line)["event"]
        for line in (f"timer {4 * 24 * 3_600_000} too-late", "recall nonsense wrong")
    ]
    client.got(COMES)
    client.do("timer 3500 last")  # no delivery follows it
    client.got({"last"})
    found = {each["body"]: each for each in client.of("got")}
    assert not NEVER & found.keys()
    for body, span_ms in EARLIEST_MS.items():
        due = sent[body]["due"] or sent[body]["begun"] + span_ms
        assert found[body]["stored"] >= due, body
    assert {"asked-commit", "asked-rollback"} <= {each["body"] for each in client.of("checked")}
    return {
        "got": sorted(each["body"] for each in client.of("got")),
        "topics asked about": {each["topic"] for each in client.of("checked")},
        "recalled": recalled["event"],
        "errors": errors,
        "handles": {body: each["handle"] != "null" for body, each in sent.items()},
    }


def test_delayed_messages_and_transactions_have_the_same_outcomes(
    brokers: dict[str, Broker], tmp_path: Path
) -> None:
    def at(kind: str) -> dict[str, Any]:
        with java_client(brokers[kind].names, "Later", tmp_path / kind) as client:
            return outcome(client)

    with ThreadPoolExecutor() as pool:  # both spend most of the time in waiting
        ours, theirs = pool.map(at, ("lakelog", "rocketmq"))
    got = ours.pop("got")
    assert got == sorted({*got})
    # RocketMQ notes ends of transactions a bit later, and checks others again.
    assert got == sorted({*theirs.pop("got")})
    assert ours == theirs


@pytest.mark.parametrize("kind", ["lakelog", "rocketmq"])
def test_request_and_reply(brokers: dict[str, Broker], kind: str, tmp_path: Path) -> None:
    """The consumer's reply is delivered to the producer of the request."""
    lines = run("Tools", "request", brokers[kind].names, home=tmp_path).splitlines()
    assert [each for each in lines if each.startswith("answer")] == ["answer reply to question"]


def test_users_and_tls_of_java_clients(tmp_path: Path) -> None:
    """Five users: right secret, topic not permitted, wrong secret, unknown user, no user.

    The last three get no route, because the name server is part of the broker.
    """
    if shutil.which("openssl") is None:
        required.missing("keys are made by openssl")
    pem, key, users = tmp_path / "certificate.pem", tmp_path / "key.pem", tmp_path / "users.toml"
    subject = ("-nodes", "-days", "2", "-subj", "/CN=tests", "-newkey", "rsa:2048")
    command = ["openssl", "req", "-x509", *subject, "-out", str(pem), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    users.write_text(
        "[[accounts]]\naccess_key = 'ann-key'\nsecret_key = 'ann-secret'\n"
        "topic_perms = { orders = 'PUB' }\n"
    )
    cases = {
        "ann-key:ann-secret:orders": "SEND_OK",
        "ann-key:ann-secret:audit": "code 16",
        "ann-key:bad-secret:orders": "no route",
        "bob-key:ann-secret:orders": "no route",
        "::orders": "no route",
    }
    settings = {"users": users, "tls": "required", "certificate": pem, "key": key}
    with lakelogs_broker_here(tmp_path, **settings) as server:
        flags = ("-Dtls.enable=true",)
        lines = run("Tools", "send", server, *cases, home=tmp_path, flags=flags).splitlines()
    assert dict(each.split(" ", 2)[1:] for each in lines if each.startswith("sent ")) == cases


# --- single requests ---


def asked(broker: Address, code: int, fields: dict[str, object], body: bytes = b"") -> str:
    """Send a request; return the response's code and fields, without ids and times."""
    texts = {name: str(value) for name, value in fields.items()}
    with socket.create_connection((broker.host, broker.port), 60) as connection:
        connection.sendall(encode_frame(RemotingCommand(code, 1, 0, texts, body)))
        stream = connection.makefile("rb")
        size = int.from_bytes(stream.read(4), "big")
        found = decode_frame(stream.read(size))
    ignored = {"msgId", "transactionId", "indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}
    ignored |= {"groupSysFlag", "topicSysFlag", "forbiddenType"}  # zeros of pulls
    known = {name: value for name, value in found.fields.items() if name not in ignored}
    return f"{found.code} {dict(sorted(known.items()))} {bool(found.body)}"


_SENT: Final = {"a": "raw", "c": "TBW102", "d": 4, "f": 0, "h": 0, "i": "TAGS\x01A\x02", "j": 0}
_PULLED: Final = {"maxMsgNums": 4, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0}
_FILTER: Final = {"subscription": "*", "subVersion": 0, "expressionType": "TAG"}
_CREATED: Final = {"defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2}
_GROUP: Final = {
    "groupName": "RawGroup",
    "consumeType": "CONSUME_ACTIVELY",
    "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
    "unitMode": False,
    "subscriptionDataSet": [],
}
_HEARTBEAT: Final = {"clientID": "raw@1", "producerDataSet": [], "consumerDataSet": [_GROUP]}


def send(topic: str, queue: int = 0, **more: object) -> tuple[int, dict[str, object], bytes]:
    fields = {**_SENT, "k": "false", "m": "false", "n": "broker-a", "b": topic, "e": queue}
    return Code.SEND_MESSAGE_V2, {**fields, "g": time.time_ns() // 1_000_000, **more}, b"raw"


def pull(topic: str, offset: int, queue: int = 0, **more: object) -> tuple[int, dict[str, object]]:
    fields = {"consumerGroup": "RawGroup", "topic": topic, "queueId": queue, "queueOffset": offset}
    return Code.PULL_MESSAGE, {**fields, **_PULLED, **_FILTER, **more}


def topic(name: str, permission: int) -> tuple[int, dict[str, object]]:
    fields = {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", **_CREATED}
    return Code.UPDATE_AND_CREATE_TOPIC, {"topic": name, "perm": permission, **fields}


def offsets(code: int, name: str, queue: int = 0, **more: object) -> tuple[int, dict[str, object]]:
    return code, {"consumerGroup": "RawGroup", "topic": name, "queueId": queue, **more}


# Left out, because lakelog's broker is stricter: sends to its own topics of timers and revived
# messages (``rmq_sys_``), sends to a topic without write permission, pulls with an invalid
# expression, and the code for a damaged batch.
SENDS: Final[list[tuple[Any, ...]]] = [
    topic("Raw", 6),
    topic("RawRead", 4),
    topic("RawWrite", 2),
    (Code.HEART_BEAT, {}, json.dumps(_HEARTBEAT).encode()),
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
    send("RawLast"),
]
READS: Final[list[tuple[Any, ...]]] = [
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


def test_raw_requests_have_the_same_outcomes(brokers: dict[str, Broker]) -> None:
    found = [answers(brokers, request) for request in SENDS]
    last = offsets(Code.GET_MAX_OFFSET, "RawLast")

    def is_queued() -> bool:
        return all("'offset': '1'" in asked(each.broker, *last) for each in brokers.values())

    eventually(is_queued)
    found += [answers(brokers, request) for request in READS]
    assert [each for each in found if each] == []


def answers(brokers: dict[str, Broker], request: tuple[Any, ...]) -> str:
    ours, theirs = (asked(brokers[each].broker, *request) for each in ("lakelog", "rocketmq"))
    return "" if ours == theirs else f"{request[:2]}\n  lakelog  {ours}\n  rocketmq {theirs}"
