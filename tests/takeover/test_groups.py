"""A consumer group goes on where it stopped, in RocketMQ after lakelog and in lakelog after it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from subprocess import PIPE, Popen
from threading import Thread
from typing import Any, Final

import pytest

from lakelog import Delivery, Message
from lakelog.files.filesystem import RealFileSystem
from lakelog_queues.groups.set_aside import resent
from lakelog_replication.remoting import GET_ALL_SUBSCRIPTION_GROUPS, call
from lakelog_replication.settings import Address
from lakelog_rocketmq.config import load_offsets
from tests.replication.masterbroker import Broker, broker, eventually, jars, name_server, quick
from tests.support.commands import invoke
from tests.support.javaprogram import java_program
from tests.takeover.members import (
    DEAD_LETTERS,
    DIES,
    FAILS,
    GROUP,
    RETRIES,
    TOPIC,
    WAITS,
    Part,
    open_store,
    running_members,
)

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]
COUNT: Final = 60
QUEUES: Final = 4
MAX_RETRIES: Final = 7
FAILS_IN_JAVA: Final = 40
DIES_IN_JAVA: Final = 50
FAILS_LAST: Final = 70
LATER: Final = range(80, 100)
SETTINGS: Final = {"messageDelayLevel": " ".join(["1s"] * 18)}

PATIENCE_SECONDS: Final = 120.0


def java(program: str, *arguments: str, home: Path) -> list[str]:
    """The words that run a program of ``java/``; skips the test without a JDK or Maven."""
    sources = sorted((Path(__file__).parent / "java").glob("*.java"))
    main = f"lakelog.takeover.{program}"
    return java_program(jars(), sources, main, *arguments, home=home, flags=quick())


@contextmanager
def java_member(
    server: Address, *fails: int, home: Path
) -> Iterator[Callable[[int], list[dict[str, Any]]]]:
    """A push consumer that leaves its group, and so commits, at the end.

    Yields a function that returns so many next messages, in the order of their arrival.

    :param fails: bodies: one that fails at first, one that fails each time, and one that fails, and
        after which the member handles no other
    """
    arguments = str(server), GROUP, TOPIC, *map(str, fails)
    lines = SimpleQueue[dict[str, Any]]()
    with Popen(
        java("GroupMember", *arguments, home=home), stdin=PIPE, stdout=PIPE, text=True
    ) as it:
        assert it.stdin is not None
        assert it.stdout is not None
        output = it.stdout

        def read() -> None:
            for line in output:
                if line.startswith("{"):  # the client's own notes go there too
                    lines.put(json.loads(line))

        reader = Thread(target=read)
        reader.start()
        try:
            yield lambda count: [lines.get(timeout=PATIENCE_SECONDS) for _ in range(count)]
            it.stdin.close()
            assert it.wait(PATIENCE_SECONDS) == 0
        finally:
            it.kill()
            reader.join()
    assert lines.empty()


def fill(path: Path) -> None:
    with open_store(path) as store:
        store.put_batch([Message(TOPIC, b"%d" % n, queue_id=n % QUEUES) for n in range(COUNT)])
    for command in (
        ("topic", "create", str(path), TOPIC),
        ("groups", "create", str(path), GROUP, "--max-retries", str(MAX_RETRIES)),
    ):
        done = invoke(*command)
        assert done.exit_code == 0, done.output


def messages_in(path: Path) -> dict[tuple[str, int], list[int]]:
    """The bodies in each queue, from offset 0."""
    with open_store(path, mode="read") as store:
        return {
            (each.topic, each.queue_id): [
                int(bytes(found.body)) for found in store.read(each.topic, each.queue_id)
            ]
            for each in store.queues()
        }


def left_of(path: Path, topic: str) -> set[int]:
    """The bodies of the group's messages from its committed offsets on."""
    committed = load_offsets(RealFileSystem(), path).value.get(f"{topic}@{GROUP}", {})
    queues = {queue: bodies for (name, queue), bodies in messages_in(path).items() if name == topic}
    return {body for queue in queues for body in queues[queue][committed.get(queue, 0) :]}


def members_stop(path: Path, *, killed: bool) -> Part:
    with running_members(path) as (part, process):
        if killed:
            process.kill()
        else:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.wait(60) == 0
    return part


def go_on_in_java(path: Path, part: Part, server: Address, master: Broker, home: Path) -> None:
    """The Java member gets all that lakelog left; it returns two messages and a third one."""
    new, retried = left_of(path, TOPIC), left_of(path, RETRIES)
    assert set(range(COUNT)) - new <= {*part.acked, FAILS, DIES}, "a message is lost"
    assert WAITS in new
    assert FAILS in retried
    fails = FAILS_IN_JAVA, DIES_IN_JAVA, FAILS_LAST
    with java_member(server, *fails, home=home) as following:
        found = following(len(new) + len(retried) + 2)
        assert {each["topic"] for each in found} == {TOPIC}
        first = sorted(each["body"] for each in found if each["retries"] == 0)
        again = sorted(each["body"] for each in found if each["retries"] == 1)
        assert first == sorted(new)
        assert again == sorted([*retried, FAILS_IN_JAVA, DIES_IN_JAVA])
        eventually(lambda: master.max_offset(DEAD_LETTERS) == 2)
        before = master.max_offset(RETRIES)
        master.send(TOPIC, b"%d" % FAILS_LAST)
        assert [each["body"] for each in following(1)] == [FAILS_LAST]
        eventually(lambda: master.max_offset(RETRIES) == before + 1)


def go_on_in_lakelog(path: Path, *, exactly: bool) -> None:
    """A member gets what the Java member did not handle.

    :param exactly: and nothing else. A broker that is killed may not have saved the offsets of its
        member: then messages come again, each when it would be handed out without that member. Nor
        may it have saved that it delivered a retry: then that is delivered once more
    """
    due = {(RETRIES, FAILS_LAST), *((TOPIC, each) for each in LATER)}
    found: dict[tuple[str, int], Delivery] = {}
    with open_store(path) as store:
        waits = WAITS in left_of(path, TOPIC)
        assert not (exactly and waits)
        with store.subscribe(GROUP, TOPIC, start="earliest") as consumer:

            def got_all() -> bool:
                polled = consumer.poll()
                consumer.ack(*polled)
                for each in polled:
                    place = each.topic, int(bytes(each.message.body))
                    assert place not in found or (not exactly and each.topic == RETRIES)
                    found[place] = each
                has_waited = {(TOPIC, WAITS), (RETRIES, WAITS)} & found.keys()
                return due <= found.keys() and bool(has_waited or not waits)

            eventually(got_all)
            if exactly:
                assert consumer.poll() == []
                assert found.keys() == due
        retry = found[RETRIES, FAILS_LAST]
        assert (retry.origin_topic, retry.attempt) == (TOPIC, 2)
        ours, theirs = store.read(DEAD_LETTERS, 0)
        assert [int(bytes(each.body)) for each in (ours, theirs)] == [DIES, DIES_IN_JAVA]
        assert (ours.reconsume_times, theirs.reconsume_times) == (2, 2)
        for each in (ours, theirs):
            again = resent(each)
            assert (again.topic, again.body, again.properties) == (TOPIC, each.body, b"")


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_a_group_goes_on_in_the_broker_and_back(tmp_path: Path, *, killed: bool) -> None:
    home = tmp_path / "broker"
    path = home / "store"
    fill(path)
    part = members_stop(path, killed=killed)
    with (
        name_server(tmp_path / "names") as server,
        broker(home, namesrvAddr=str(server), **SETTINGS) as master,
    ):
        groups = call(master.client, GET_ALL_SUBSCRIPTION_GROUPS).content()
        assert groups["subscriptionGroupTable"][GROUP]["retryMaxTimes"] == MAX_RETRIES
        go_on_in_java(path, part, server, master, tmp_path)
        for each in LATER:
            master.send(TOPIC, b"%d" % each, each % QUEUES)
        end: Callable[[], None] = master.kill if killed else master.stop
        end()
    go_on_in_lakelog(path, exactly=not killed)
