"""``mqadmin`` of RocketMQ 5.3.3 prints the same with lakelog's broker as with RocketMQ's."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import attrs
import pytest

from lakelog_broker.codes import RequestCode
from lakelog_replication.remoting import call
from tests.broker.later import java, rocketmqs_broker
from tests.broker.test_tools import lakelogs_broker_here
from tests.replication.broker import eventually

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]
_PATIENCE_S: Final = 500
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


@attrs.frozen
class Allowed:
    """Lines that only one of the brokers may print for a command, with the reason."""

    command: str
    why: str
    only_theirs: str | None = None
    only_ours: str | None = None

    def ours(self, line: str) -> bool:
        """Whether lakelog alone may print a line."""
        return self.only_ours is not None and bool(re.fullmatch(self.only_ours, line))

    def theirs(self, line: str) -> bool:
        """Whether RocketMQ alone may print it."""
        return self.only_theirs is not None and bool(re.fullmatch(self.only_theirs, line))


_PHANTOM: Final = "RocketMQ lists a group with the name of the topic, which was never made"
_NO_GROUP: Final = r"MessageTrack \[consumerGroup=orders, trackType=UNKNOWN.*"
_RETRIES: Final = r"%RETRY%readers .*"
_EMPTY: Final = "the offset 0 of an empty queue is committed by lakelog's members only"
_ALLOWED: Final = (
    Allowed(
        "topicList",
        "topics of RocketMQ's own work exist from its start",
        r"(Tests )?(RMQ_SYS_\w+|BenchmarkTest|OFFSET_MOVED_EVENT|SELF_TEST_TOPIC"
        r"|SCHEDULE_TOPIC_XXXX|rmq_sys_\S+)",
    ),
    Allowed("statsAll", _PHANTOM, r"orders orders .*"),
    Allowed("queryMsgById", _PHANTOM, _NO_GROUP),
    Allowed("queryMsgByUniqueKey", _PHANTOM, _NO_GROUP),
    Allowed("queryMsgByOffset", _PHANTOM, _NO_GROUP),
    Allowed("consumerProgress", _EMPTY, _RETRIES, _RETRIES),
    Allowed(
        "brokerStatus",
        "no thread pools, no times of single puts; a name that RocketMQ 4 reads",
        r"\w+ThreadPoolQueueCapacity|dispatchMaxBuffer|remainTransientStoreBufferNumbs"
        r"|getMessageEntireTimeMax|putLatency\w+|putMessageDistributeTime"
        r"|putMessageEntireTimeMax|putMessageFailedTimes",
        r"getTransferedTps",
    ),
    Allowed("getBrokerConfig", "settings without a meaning here", r"\w+ =.*"),
    Allowed("getNamesrvConfig", "settings without a meaning here", r"\w+ =.*"),
    Allowed(
        "updateBrokerConfig",
        "settings are fixed while lakelog's broker runs",
        r"update broker config success, ADDRESS",
        r".*UpdateBrokerConfigSubCommand command failed|Caused by: .*CODE: 16 DESC: the settings.*",
    ),
)


def test_outputs_of_mqadmin(tmp_path: Path) -> None:
    """The outputs are equal except for values that depend on machine or time."""
    commands = tmp_path / "commands"
    commands.write_text(_COMMANDS)
    with (
        lakelogs_broker_here(tmp_path, cluster="Tests") as ours,
        rocketmqs_broker(tmp_path / "rocketmq") as theirs,
    ):
        names = theirs.server  # the broker listens before it has registered there
        eventually(lambda: b"broker-a" in call(names, RequestCode.GET_BROKER_CLUSTER_INFO).body)
        pairs = {"lakelog": (ours, ours), "rocketmq": (names, theirs.process.client)}

        def run(kind: str) -> str:
            home = tmp_path / f"tools-{kind}"
            home.mkdir()
            words = java("Admin", str(commands), *map(str, pairs[kind]), home=home)
            done = subprocess.run(
                words, cwd=home, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
            )
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr
            return done.stdout

        with ThreadPoolExecutor() as threads:
            outputs = list(threads.map(run, pairs))
    ours_printed, theirs_printed = ([*_blocks(each)] for each in outputs)
    assert [command for command, _ in ours_printed] == [
        each for each in _COMMANDS.splitlines() if each not in _STEPS
    ]
    differences = [
        f"{command}\n  only lakelog: {only_ours}\n  only RocketMQ: {only_theirs}"
        for (command, mine), (_, yours) in zip(ours_printed, theirs_printed, strict=True)
        for only_ours, only_theirs in [_difference(command, mine, yours)]
        if only_ours or only_theirs
    ]
    assert not differences, "\n".join(differences)


def _blocks(output: str) -> Iterator[tuple[str, str]]:
    """Yield each command with its output."""
    for block in re.split(r"^### ", output, flags=re.MULTILINE)[1:]:
        command, _, printed = block.partition("\n")
        yield command, printed


def _lines(command: str, printed: str) -> Counter[str]:
    for pattern, normal in (*_NORMAL, *_CHANGES.get(command.split(maxsplit=1)[0], ())):
        printed = re.sub(pattern, normal, printed, flags=re.MULTILINE)
    found = (re.sub(r"\s+", " ", line).strip() for line in printed.splitlines())
    return Counter(line for line in found if line and not re.match(_NO_OUTPUT, line))


def _difference(command: str, ours: str, theirs: str) -> tuple[list[str], list[str]]:
    """Return the lines that only lakelog, and only RocketMQ printed, without allowed ones."""
    mine, yours = _lines(command, ours), _lines(command, theirs)
    name = command.split(maxsplit=1)[0]
    allowed = [each for each in _ALLOWED if each.command == name]
    return (
        [line for line in mine - yours if not any(each.ours(line) for each in allowed)],
        [line for line in yours - mine if not any(each.theirs(line) for each in allowed)],
    )
