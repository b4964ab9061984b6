"""Java clients that send and consume under load, and checks of their journals."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

import lakelog
from lakelog_replication.remoting import BrokerRefused, call
from lakelog_replication.settings import Address
from tests.broker.later import java, set_pop_mode
from tests.replication.masterbroker import CREATE_GROUP, create_topic, eventually, has_route
from tests.support.waiting import until

TOPIC: Final = "Load"
MEMBERS: Final = "lives", "dies"
"""Each client is the only member of two groups, so that queues never move between members."""
GROUPS: Final = tuple(f"{kind}-{member}" for kind in ("push", "pop") for member in MEMBERS)
NEVER_COME: Final = "rollback", "never"
RETRIES: Final = 2
DELAY_MS: Final = 1_000
"""The delay of level 1, which also applies to retries."""
LONGEST_TIMER_MS: Final = 3_000
PATIENCE_SECONDS: Final = 180.0

Event = dict[str, Any]


def configure(address: Address) -> None:
    """Create the topic, limit the retries of all groups, and set half of them to pop mode."""
    create_topic(address, TOPIC, 4)
    for group in GROUPS:
        body = {"groupName": group, "retryMaxTimes": RETRIES}
        call(address, CREATE_GROUP, body=json.dumps(body).encode())
        if group.startswith("pop"):
            set_pop_mode(address, TOPIC, group)


@attrs.define
class Kill:
    """The kill of a broker or client.

    :ivar of: ``broker``, or one of :data:`MEMBERS`
    :ivar begun_ms: a time before the kill, in ms since 1970
    :ivar ended_ms: a time after it, in ms since 1970
    :ivar offsets: the offsets saved by then, by group, topic and queue id
    """

    of: str
    begun_ms: int
    ended_ms: int
    offsets: Mapping[str, Mapping[str, Mapping[int, int]]]

    def saved(self, event: Event) -> int:
        topics = self.offsets.get(event["group"], {})
        return topics.get(event["topic"], {}).get(event["queue"], 0)


class Clients:
    """Starts, kills and restarts clients, and reads the journals of all of them."""

    def __init__(self, home: Path, pause_ms: int) -> None:
        self.home, self._pause_ms = home, pause_ms
        self.kills: list[Kill] = []
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._starts = 0

    def start(self, member: str, server: Address) -> None:
        """Start a member, and wait until its first send is acknowledged."""
        name = f"{member}{self._starts}"
        self._starts += 1
        journal = self.home / f"journal-{name}"
        arguments = str(server), TOPIC, member, name, str(journal), str(self._pause_ms)
        command = java("Load", *arguments, str(LONGEST_TIMER_MS), home=self.home)
        with (self.home / f"out-{name}").open("wb") as out:
            self._running[member] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=out, text=True
            )
        until(lambda: self.sent_by(name), f"{name} sent nothing", seconds=PATIENCE_SECONDS)

    def sent_by(self, name: str) -> int:
        path = self.home / f"journal-{name}"
        return path.read_bytes().count(b'"sent"') if path.exists() else 0

    def acknowledged(self) -> int:
        names = (path.name.removeprefix("journal-") for path in self.home.glob("journal-*"))
        return sum(map(self.sent_by, names))

    def await_sends(self, count: int) -> None:
        known = self.acknowledged()
        until(lambda: self.acknowledged() >= known + count, seconds=PATIENCE_SECONDS)

    def kill(self, *members: str, broker: Any = None) -> None:
        """Kill members and a broker, in this order, and note it."""
        begun = _now_ms()
        for member in members:
            self._end(member)
        if broker is not None:
            broker.end(killed=True)
        ended = _now_ms()
        self.kills += [Kill(each, begun, ended, self._saved_offsets()) for each in members]
        if broker is not None:
            self.kills.append(Kill("broker", begun, ended, self._saved_offsets()))

    def _saved_offsets(self) -> dict[str, dict[str, dict[int, int]]]:
        with lakelog.open(self.home / "store", mode="read") as store:
            return {
                group: {topic: dict(queues) for topic, queues in topics.items()}
                for group, topics in store.groups().items()
            }

    def quiet(self) -> None:
        """Stop the sends of all members; they continue to consume."""
        running = len(self._running)
        before = self._count("stopped")
        for process in self._running.values():
            assert process.stdin is not None
            process.stdin.write("stop\n")
            process.stdin.flush()
        until(lambda: self._count("stopped") == before + running, seconds=PATIENCE_SECONDS)

    def _count(self, event: str) -> int:
        return sum(each["event"] == event for each in self.events())

    def end(self) -> None:
        for member in list(self._running):
            self._end(member)

    def _end(self, member: str) -> None:
        with self._running.pop(member) as process:
            process.kill()

    def events(self) -> list[Event]:
        """Return all complete lines of the journals; a killed client may leave a torn last line."""
        return [
            json.loads(line)
            for path in sorted(self.home.glob("journal-*"))
            for line in path.read_text().split("\n")[:-1]
        ]

    def dead_letters(self) -> dict[str, set[str]]:
        with lakelog.open(self.home / "store", mode="read") as store:
            return {group: set(_bodies(store, f"%DLQ%{group}")) for group in GROUPS}

    def all_done(self, *, dead_letters: bool = True) -> None:
        """Wait until each group has consumed every acknowledged message, or has a dead letter."""
        left: dict[str, list[str]] = {}

        def done() -> bool:
            dead = self.dead_letters() if dead_letters else {key: set[str]() for key in GROUPS}
            left.update(_missing(self.events(), dead, dead_letters=dead_letters))
            time.sleep(0.2)  # each pass reads the journals from the start
            return not any(left.values())

        try:
            until(done, seconds=PATIENCE_SECONDS)
        except AssertionError:
            counts = {group: (len(bodies), bodies[:5]) for group, bodies in left.items()}
            raise AssertionError(f"not consumed: {counts}") from None


def _bodies(store: lakelog.Store, topic: str) -> Iterable[str]:
    for queue in store.queues(topic):
        for message in store.read(topic, queue.queue_id):
            yield bytes(message.body).decode()


def _missing(
    events: list[Event], dead: Mapping[str, set[str]], *, dead_letters: bool
) -> dict[str, list[str]]:
    sent = [each["body"] for each in events if each["event"] == "sent"]
    due = {body for body in sent if not body.endswith(NEVER_COME)}
    if not dead_letters:
        due = {body for body in due if not body.endswith("dead")}
    done: dict[str, set[str]] = defaultdict(set)
    for each in events:
        if each["event"] == "got" and not each["fails"]:
            done[each["group"]].add(each["body"])
    return {group: sorted(due - done[group] - dead[group]) for group in GROUPS}


def early(events: Iterable[Event]) -> list[Event]:
    """Return deliveries before their time, and redeliveries before the delay of a retry."""
    events = list(events)
    due = {each["body"]: each["due"] for each in events if each["event"] in {"sent", "failed"}}
    got = [each for each in events if each["event"] == "got"]
    found = [each for each in got if each["stored"] < due.get(each["body"], 0)]
    failed: dict[tuple[str, str, int], int] = {}
    times: dict[tuple[str, int], int] = {}
    for each in got:
        key, place = (each["group"], each["body"], each["times"]), (each["group"], each["place"])
        failed[key] = min(failed.get(key, each["at"]), each["at"])
        # A client that fails to return a record consumes it again, and increments its count.
        times[place] = min(times.get(place, each["times"]), each["times"])
    for each in got:
        if each["topic"].startswith("%RETRY%") and not each["popped"]:
            # A client that fails to return a message sends it; a repeated send lacks the count.
            former = max(0, times[each["group"], each["place"]] - 1)
            first = failed.get((each["group"], each["body"], former))
            if first is None or each["stored"] < first + DELAY_MS:
                found.append(each)
    return found


def rolled_back(events: Iterable[Event]) -> list[Event]:
    return [each for each in events if each["event"] == "got" and each["body"].endswith(NEVER_COME)]


def redelivered(events: Iterable[Event], kills: list[Kill]) -> tuple[list[Any], dict[str, int]]:
    """Return redeliveries that no rule of the protocol allows, and counts of the allowed ones.

    - A message that was sent once is stored once in its topic: a failed send is not repeated. A
      delayed or transactional one may be stored again if the broker was killed between the two.
    - A record may be delivered again to a group after a kill, if it is not below the offset saved
      by then; or by a pop, after its invisible time. A retry is a delivery of its own.
    """
    wrong: list[Any] = []
    counts = dict.fromkeys(("stored again", "handed out again", "popped again"), 0)
    got = [each for each in events if each["event"] == "got"]
    places: dict[str, dict[int, int]] = defaultdict(dict)
    for each in got:
        if each["topic"] == TOPIC:
            places[each["body"]][each["place"]] = each["stored"]
    brokers = [each for each in kills if each.of == "broker"]
    for body, stored in places.items():
        times = [stored[place] for place in sorted(stored)]
        for former, later in itertools.pairwise(times):
            counts["stored again"] += 1
            is_later = body.endswith(("delay", "timer", "commit", "asked"))
            if not is_later or not any(
                former <= kill.ended_ms and later >= kill.begun_ms for kill in brokers
            ):
                wrong.append((body, former, later))
    hand_outs: dict[tuple[str, int, int], list[Event]] = defaultdict(list)
    for each in got:
        hand_outs[each["group"], each["place"], each["times"]].append(each)
    for again in hand_outs.values():
        again.sort(key=lambda each: each["at"])
        for first, second in itertools.pairwise(again):
            kind = _again(first, second, kills)
            if kind is None:
                wrong.append((first, second))
            else:
                counts[kind] += 1
    return wrong, counts


def _again(first: Event, second: Event, kills: list[Kill]) -> str | None:
    """Return the rule that allows a second delivery; ``None`` if there is none."""
    member = first["group"].partition("-")[2]
    begun_ms = first["popped"] or first["at"]  # a popped message may wait in the client
    for kill in kills:
        is_between = begun_ms <= kill.ended_ms and second["at"] >= kill.begun_ms
        if is_between and kill.of in {"broker", member} and first["offset"] >= kill.saved(first):
            return "handed out again"
    if first["popped"] and second["popped"] >= first["popped"] + first["invisible"]:
        return "popped again"
    return None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def await_route(names: Address, broker: Address) -> None:
    """Create the topic and groups, and wait until the name server has the topic's route."""

    def is_known() -> bool:
        try:
            configure(broker)
        except (BrokerRefused, OSError):
            return False
        return has_route(names, TOPIC)

    eventually(is_known)
