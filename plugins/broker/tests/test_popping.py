"""Hand-outs of messages one by one, with a clock that the tests set."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any, Final

import pytest

from lakelog import Message, PutResult, Store
from lakelog.errors import StoreError
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.properties import TIMER_TOPIC
from lakelog_broker.codes import Refused
from lakelog_broker.filtering import MessageFilter
from lakelog_broker.popping import service
from lakelog_broker.popping.checkpoints import REVIVE_GROUP, REVIVE_TOPIC, revive_checkpoints
from lakelog_broker.popping.handles import ReceiptHandle, retry_topic
from lakelog_broker.popping.service import Popped, Popping, PopRequest
from lakelog_queues.delays.delivering import RETRY_MS
from lakelog_queues.delays.timers import TimerProgress, save_progress
from plugins.broker.tests.support import SetClock, broker_over

GROUP, TOPIC = "G", "T"
INVISIBLE_MS = 10_000
RETRY = f"%RETRY%{GROUP}_{TOPIC}"
REVIVED: Final = f"{REVIVE_TOPIC}DefaultCluster"


class Table:
    """A group at a broker of one topic with one queue."""

    def __init__(self, store: Store) -> None:
        self.clock = SetClock(1_700_000_000_000)
        self.broker = broker_over(store, port=0)
        self.broker.topics.create(TOPIC, 1)
        self.restarted()

    def put(self, *bodies: str, **properties: str) -> None:
        for body in bodies:
            self.broker.store.put(Message(TOPIC, body.encode(), properties=properties, queue_id=0))

    def request(self, most: int = 32, **more: Any) -> PopRequest:
        named: dict[str, Any] = {"group": GROUP, "topic": TOPIC, "queues": [0], **more}
        return PopRequest(max_messages=most, invisible_ms=INVISIBLE_MS, **named)

    def pop(self, most: int = 32, **more: Any) -> list[Popped]:
        self.broker.store.wait_dispatched(timeout_ms=60_000)
        return self.popping.pop(self.request(most, **more))

    def bodies(self, most: int = 32, **more: Any) -> list[str]:
        """The bodies of what is popped."""
        return bodies(self.pop(most, **more))

    def ack(self, popped: Popped) -> bool:
        return self.popping.acknowledge(GROUP, TOPIC, popped.handle)

    def pass_time(self, ms: int = INVISIBLE_MS) -> None:
        self.clock.now_ms += ms

    @property
    def committed(self) -> int | None:
        return self.broker.offsets.get(GROUP, TOPIC, 0)

    def dead_letters(self) -> list[Any]:
        self.broker.store.wait_dispatched(timeout_ms=60_000)
        return [*self.broker.store.get(f"%DLQ%{GROUP}", 0, 0).messages]

    def restarted(self) -> None:
        """Lose what is in memory; the committed offsets stay."""
        self.popping = Popping(self.broker, self.clock)

    def hold_back(self) -> None:
        """The first of two messages is not acknowledged in time."""
        self.put("a", "b")
        _, b = self.pop()
        self.ack(b)
        self.pass_time()


@pytest.fixture
def table(store: Store) -> Table:
    return Table(store)


def bodies(found: list[Popped]) -> list[str]:
    return [each.message.body.decode() for each in found]


def test_a_message_is_invisible_until_its_time_is_over(table: Table) -> None:
    table.put("a")
    assert table.bodies() == ["a"]
    assert table.pop() == []
    table.pass_time(INVISIBLE_MS - 1)
    assert table.pop() == []
    table.pass_time(1)
    (again,) = table.pop()
    assert (bodies([again]), again.attempt) == (["a"], 2)


def test_the_committed_offset_is_the_first_unacknowledged_message(table: Table) -> None:
    table.put("a", "b", "c")
    a, b, c = table.pop()
    for each, committed in ((b, 0), (a, 2), (c, 3)):
        assert table.ack(each)
        assert table.committed == committed


def test_an_outdated_handle_acknowledges_nothing(table: Table) -> None:
    table.put("a")
    (first,) = table.pop()
    table.pass_time()
    (second,) = table.pop()
    assert not table.ack(first)
    assert table.committed == 0
    assert table.ack(second)
    assert not table.ack(second)
    assert table.committed == 1


def test_a_changed_time_gives_a_new_handle(table: Table) -> None:
    table.put("a")
    (first,) = table.pop()
    changed = table.popping.change(GROUP, TOPIC, first.handle, 1000)
    assert changed is not None
    assert not table.ack(first)
    table.pass_time(1000)
    (again,) = table.pop()
    assert again.attempt == 2
    assert not table.popping.acknowledge(GROUP, TOPIC, changed)


def test_a_message_that_holds_others_back_moves_to_the_retry_topic(table: Table) -> None:
    """Also over a restart."""
    table.hold_back()
    assert table.pop() == []  # it is being put
    assert table.committed == 2
    table.restarted()
    (again,) = table.pop()
    assert (again.message.topic, again.message.reconsume_times, again.attempt) == (RETRY, 1, 2)
    assert (again.message.body, again.message.properties["RETRY_TOPIC"]) == (b"a", TOPIC)
    assert table.ack(again)
    assert table.broker.offsets.get(GROUP, RETRY, 0) == 1


def test_a_message_whose_copy_is_not_put_is_handed_out_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With puts that wait for the disk, the copy for the retry topic may fail later."""

    async def fail() -> PutResult:
        raise StoreError("the disk is away")

    async def moves() -> None:
        assert table.pop() == []
        while table.popping._moves:
            await asyncio.sleep(0)

    table.hold_back()
    with monkeypatch.context() as patched:
        patched.setattr(table.broker.appender, "append_moved", lambda _message: fail())
        asyncio.run(moves())
    assert table.committed == 0
    (again,) = table.pop() or table.pop()  # the first one may only put it
    assert (bodies([again]), again.message.topic) == (["a"], RETRY)


def test_a_restart_hands_out_again_all_behind_the_first_unacknowledged(table: Table) -> None:
    table.put("a", "b", "c")
    a, _, c = table.pop()
    table.ack(a)
    table.ack(c)
    table.restarted()
    assert table.bodies() == ["b", "c"]


def test_the_last_attempt_is_followed_by_a_dead_letter(table: Table) -> None:
    table.put("a")
    for attempt in range(1, 18):  # retryMaxTimes is 16
        (popped,) = table.pop()
        assert popped.attempt == attempt
        table.pass_time()
    assert table.pop() == []
    assert table.committed == 1
    (dead,) = table.dead_letters()
    assert (dead.body, dead.properties["DLQ_ORIGIN_TOPIC"]) == (b"a", TOPIC)


def test_a_client_forwards_a_dead_letter(table: Table) -> None:
    table.put("a")
    (popped,) = table.pop()
    assert table.popping.dead_letter(GROUP, TOPIC, popped.handle)
    assert not table.popping.dead_letter(GROUP, TOPIC, popped.handle)
    assert table.committed == 1
    assert len(table.dead_letters()) == 1


def test_an_ordered_queue_gives_nothing_while_a_message_is_out(table: Table) -> None:
    table.put("a", "b", "c")
    a, b = table.pop(2, is_ordered=True)
    for acknowledged in (False, True):
        assert table.pop(is_ordered=True) == []
        assert not table.popping.is_available(table.request(is_ordered=True))
        assert table.popping.is_available(table.request())
        assert acknowledged or table.ack(a)
    table.pass_time()
    (again,) = table.pop(1, is_ordered=True)
    assert (bodies([again]), again.attempt) == (["b"], 2)
    assert not table.ack(b)
    table.ack(again)
    assert table.popping.is_available(table.request(is_ordered=True))
    assert table.bodies(is_ordered=True) == ["c"]


def test_a_repeated_ordered_request_gets_what_it_got(table: Table) -> None:
    table.put("a", "b")
    first = table.pop(1, is_ordered=True, attempt_id="one")
    same = table.pop(1, is_ordered=True, attempt_id="one")
    assert bodies(first) == bodies(same) == ["a"]
    assert same[0].attempt == 1
    assert table.pop(1, is_ordered=True, attempt_id="two") == []


def test_an_ordered_message_comes_again_behind_an_earlier_one(table: Table) -> None:
    """Though it was acknowledged, and before new ones; when the earlier one is done, both are."""
    table.put("a", "b", "c")
    first = table.pop(2, is_ordered=True)
    assert table.ack(first[1])
    assert not table.ack(first[1])
    assert table.committed == 0
    table.pass_time()
    again = table.pop(is_ordered=True)
    assert (bodies(again), [each.attempt for each in again]) == (["a", "b", "c"], [2, 2, 1])
    assert table.ack(again[1])
    assert table.ack(again[0])
    assert table.committed == 2
    assert table.ack(again[2])
    assert table.committed == 3


def test_filters_of_tags_and_of_properties(table: Table) -> None:
    table.put("a", TAGS="x", n="1")
    table.put("b", TAGS="y", n="2")
    table.put("c", TAGS="x", n="3")
    assert table.bodies(selection=MessageFilter.of("x || z", "TAG")) == ["a", "c"]
    table.restarted()
    selection = MessageFilter.of("n > 1", "SQL92")
    assert table.bodies(1, selection=selection, group="other") == ["b"]
    assert table.bodies(selection=selection, group="other") == ["c"]
    with pytest.raises(Refused):
        MessageFilter.of("n >", "SQL92")


def test_messages_without_a_match_do_not_hold_the_offset_back(table: Table) -> None:
    table.put("a", "b", TAGS="x")
    assert table.pop(selection=MessageFilter.of("none", "TAG")) == []
    assert table.committed == 2


def test_the_number_of_messages_that_are_out_is_bounded(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_OUT", 3)
    table.put(*"abcde")
    popped = table.pop()
    assert bodies(popped) == ["a", "b", "c"]
    assert table.pop() == []
    table.ack(popped[0])
    assert table.bodies() == ["d"]


def test_an_offset_that_an_administrator_sets_counts(table: Table) -> None:
    table.put("a", "b")
    for each in table.pop():
        table.ack(each)
    table.broker.offsets.set(GROUP, TOPIC, 0, 0)
    assert table.bodies() == ["a", "b"]


def test_a_handle_has_the_form_of_rocketmq() -> None:
    text = "5 1700000000000 10000 0 1 broker-a 2 7"
    handle = ReceiptHandle.parse(text)
    assert str(handle) == text
    assert handle.topic_of(GROUP, TOPIC) == retry_topic(GROUP, TOPIC) == RETRY
    for bad in ("", "a b c d e f g h", "1 2 3 4 5", text.rpartition(" ")[0]):
        with pytest.raises(Refused):
            ReceiptHandle.parse(bad)


# --- what RocketMQ's broker handed out before ---


PLACE: Final = {"so": 0, "pt": 1, "q": 0, "t": TOPIC, "c": GROUP, "bn": "broker-a"}
LATE: Final = {**PLACE, "pt": 1_700_000_000_000}


def checkpoint(offsets: int, **more: object) -> dict[str, object]:
    return {**PLACE, "it": 60000, "bm": 0, "n": offsets, **more}


def put_records(
    table: Table, *records: tuple[str, object], topic: str = REVIVED, **properties: str
) -> None:
    """Put checkpoints and acknowledgements, as RocketMQ writes them."""
    for tag, content in records:
        body = json.dumps(content).encode()
        message = Message(topic, body, tags=tag, properties=properties or None, queue_id=0)
        table.broker.store.put(message)
    table.broker.store.wait_dispatched(timeout_ms=60_000)


def wait_for_timer(table: Table, *records: tuple[str, object]) -> None:
    """Put them where RocketMQ has them until their time."""
    real = {"REAL_TOPIC": REVIVED, "REAL_QID": "0", "TIMER_OUT_MS": "1700000060000"}
    put_records(table, *records, topic=TIMER_TOPIC, **real)


def revive(table: Table, committed: int) -> None:
    table.broker.offsets.set(GROUP, TOPIC, 0, committed)
    asyncio.run(revive_checkpoints(table.broker))


def test_open_checkpoints_of_rocketmq_are_put_into_the_retry_topic(table: Table) -> None:
    """The topic of the checkpoints need not be in topics.json."""
    table.put(*"abcde")
    put_records(
        table,
        ("ck", checkpoint(4, d=[0, 1, 3, 4])),
        ("ck", checkpoint(1, pt=2, so=2)),
        ("ack", {**PLACE, "ao": 0}),
        ("bAck", {**PLACE, "aol": [3, 9]}),
        ("ack", {**PLACE, "pt": 3, "ao": 4}),
        ("ck", "no checkpoint"),
    )
    revive(table, 5)
    assert sorted(table.bodies()) == ["b", "c", "e"]
    assert table.broker.offsets.get(REVIVE_GROUP, REVIVED, 0) == 5, "RocketMQ goes on behind it"
    asyncio.run(revive_checkpoints(table.broker))
    assert table.pop() == []


def test_checkpoints_are_put_once_although_the_broker_is_killed(table: Table) -> None:
    table.put("a")
    put_records(table, ("ck", checkpoint(1)))
    asyncio.run(revive_checkpoints(table.broker))
    again = Table(table.broker.store)  # nothing else was saved
    asyncio.run(revive_checkpoints(again.broker))
    again.broker.offsets.set(GROUP, TOPIC, 0, 1)
    assert again.bodies() == ["a"]


def test_reading_begins_behind_the_last_checkpoint_that_rocketmq_settled(table: Table) -> None:
    table.put("a", "b")
    put_records(table, *(("ck", checkpoint(1, pt=1 + at, so=at)) for at in (0, 1)))
    table.broker.offsets.set(REVIVE_GROUP, REVIVED, 0, 0)
    revive(table, 2)
    assert table.bodies() == ["b"]
    assert table.broker.offsets.get(REVIVE_GROUP, REVIVED, 0) == 1


def test_a_checkpoint_that_the_timer_delivered_is_no_longer_read_there(store: Store) -> None:
    """RocketMQ may have settled it in the meantime, with another record behind it."""
    progress = TimerProgress(0, 1, 1_700_000_060_001)
    save_progress(RealFileSystem(), Path(store.path), progress, progress.due_before_ms)
    table = Table(store)
    table.put("a", "b")
    wait_for_timer(table, *(("ck", checkpoint(1, **{**LATE, "so": at})) for at in (0, 1)))
    revive(table, 2)
    assert table.bodies() == ["b"]


def test_a_checkpoint_that_the_timer_delivers_later_is_honoured_once(table: Table) -> None:
    table.put("a", "b")
    sent = ("ck", checkpoint(2, **LATE))
    wait_for_timer(table, sent, ("ack", {**LATE, "ao": 1}))
    revive(table, 2)
    assert table.bodies() == ["a"]
    put_records(table, sent)
    asyncio.run(revive_checkpoints(table.broker))
    assert table.pop() == []


def test_a_checkpoint_that_waits_gets_an_acknowledgement_behind_it(table: Table) -> None:
    """RocketMQ's broker, to which the directory may go back, puts nothing of it again."""
    table.put("a", "b", "c")
    wait_for_timer(table, ("ck", checkpoint(3, **LATE)), ("ack", {**LATE, "ao": 1}))
    begun_ms = time.time_ns() // 1_000_000
    asyncio.run(revive_checkpoints(table.broker))
    table.broker.store.wait_dispatched(timeout_ms=60_000)
    *_, found = table.broker.store.read(TIMER_TOPIC, 0)
    assert (found.tags, json.loads(found.body)) == ("bAck", {**LATE, "aol": [0, 2]})
    properties = found.properties
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == (REVIVED, "0")
    assert int(properties["TIMER_OUT_MS"]) > begun_ms, "the checkpoint is due, and comes first"


def test_a_checkpoint_of_an_odd_group_stops_no_other(table: Table) -> None:
    """Not the start either; one that is impossible is read again by the next start."""
    table.put("a", "b", "c")
    odd = [{**checkpoint(1, so=1 + at), "c": name} for at, name in enumerate(("b.2", "a/b"))]
    put_records(table, ("ck", checkpoint(1, pt=2)), *(("ck", each) for each in odd))
    revive(table, 3)
    assert table.bodies() == ["a"]
    assert [each.body for each in table.broker.store.read("%RETRY%b.2_T", 0)] == [b"b"]
    assert table.broker.offsets.get(REVIVE_GROUP, REVIVED, 0) == 1


# --- names and failures ---


@pytest.mark.parametrize(("group", "topic"), [("g" * 40, "t" * 100), ("g" * 130, "t" * 20)])
def test_retry_topics_are_longer_than_those_of_clients(
    table: Table, group: str, topic: str
) -> None:
    table.broker.topics.create(topic, 1)
    for body in (b"a", b"b"):
        table.broker.store.put(Message(topic, body, queue_id=0))
    _, b = table.pop(group=group, topic=topic)
    assert table.popping.acknowledge(group, topic, b.handle)
    table.pass_time()
    table.pop(group=group, topic=topic)
    (again,) = table.pop(group=group, topic=topic)
    assert again.message.topic == f"%RETRY%{group}_{topic}"
    with pytest.raises(Refused):
        table.broker.topics.create("t" * 128, 1)


def test_a_message_whose_retry_topic_no_record_can_hold_stays_in_its_queue(table: Table) -> None:
    group = "g" * 252  # neither a dead letter's
    table.put("a", "b")
    _, b = table.pop(group=group)
    table.popping.acknowledge(group, TOPIC, b.handle)
    for attempt in range(2, 20):
        table.pass_time()
        (again,) = table.pop(group=group)
        assert (again.message.topic, again.attempt) == (TOPIC, attempt)


def test_groups_with_the_same_name_of_a_retry_topic_get_only_their_own(table: Table) -> None:
    pairs = ("a_b", "c"), ("a", "b_c")
    for group, topic in pairs:
        table.broker.topics.create(topic, 1)
        for body in (f"{group} is late", "b"):
            table.broker.store.put(Message(topic, body.encode(), queue_id=0))
        _, b = table.pop(group=group, topic=topic)
        table.popping.acknowledge(group, topic, b.handle)
        table.pass_time()
        assert table.bodies(group=group, topic=topic) == []
    found = [table.bodies(group=group, topic=topic) for group, topic in pairs]
    assert found == [["a_b is late"], ["a is late"]]
    for group, topic in pairs:
        assert table.broker.has_retry_topic(group, table.broker.pop_retry_topic(group, topic))


def test_a_retry_topic_that_a_group_pulls_is_no_other_groups(table: Table) -> None:
    table.broker.topics.add_group(f"{GROUP}_{TOPIC}")
    table.hold_back()
    table.pop()
    (again,) = table.pop()
    assert again.message.topic == f"%RETRY%{GROUP}+{TOPIC}"


def test_a_message_that_cannot_be_read_comes_later_and_stops_no_other(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.put("a", "b")
    table.pop()
    table.pass_time()
    read = table.broker.store.get_records

    def failing(topic: str, queue_id: int, offset: int, *more: Any, **named: Any) -> Any:
        if offset == 0:
            raise StoreError("the disk is away")
        return read(topic, queue_id, offset, *more, **named)

    with monkeypatch.context() as patched:
        patched.setattr(table.broker.store, "get_records", failing)
        assert table.bodies() == ["b"]
    table.pass_time(RETRY_MS)
    assert table.bodies() == ["a"]
