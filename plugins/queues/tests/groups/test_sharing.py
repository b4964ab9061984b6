"""Members of a group in one process: shares, acknowledgement, invisible time, retries, order."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

import lakelog
from lakelog import Delivery, Message, PutRefused, PutStatus, Store
from lakelog.arguments import WrongType, WrongValue
from lakelog.errors import SettingsError, StoreClosed, StoreReadOnly
from lakelog_queues.groups.options import boot_ms
from lakelog_queues.groups.state_file import state_path
from lakelog_queues.groups.state_words import hand_out
from lakelog_testing.samples import copy_store
from plugins.queues.tests.groups.support import (
    Clock,
    bodies,
    committed,
    drain,
    fill,
    joined,
    open_store,
    put,
)
from tests.support.rebooting import rebooted
from tests.support.waiting import until


def test_members_split_the_queues_evenly_and_take_over(store: Store) -> None:
    fill(store, 40)
    queues = [("t", queue) for queue in range(4)]
    with joined(store) as one:
        with joined(store) as two, joined(store) as three:
            members = (one, two, three)

            def shares() -> list[list[tuple[str, int]]]:
                for each in members:
                    each.poll(1)
                return [each.assigned() for each in members]

            until(lambda: sorted(map(len, shares())) == [1, 1, 2])
            assert sorted(queue for share in shares() for queue in share) == queues
        until(lambda: one.poll(1) is not None and len(one.assigned()) == 4)


def test_members_go_on_without_the_name_of_their_file(tmp_path: Path) -> None:
    """As a cleaner of temporary files removes it; what a member holds stays with it."""
    with open_store(tmp_path) as store, joined(store) as one:
        fill(store, 8)
        held = drain(one, count=8)
        state_path(tmp_path, "g").unlink()
        with joined(store) as two:

            def is_shared() -> bool:
                assert not two.poll(8)
                assert not one.poll(8)
                return len(one.assigned()) == len(two.assigned()) == 2

            until(is_shared)
            assert one.ack(*held)
        assert not state_path(tmp_path, "g").exists()


def test_what_a_member_holds_when_it_leaves_comes_at_once(store: Store) -> None:
    fill(store, 8)
    one = joined(store)
    held = drain(one, count=8)
    assert {each.attempt for each in held} == {1}
    assert one.ack(*held[:3])
    assert not one.ack(held[0]), "it is acknowledged already"
    one.close()
    with pytest.raises(StoreClosed):
        one.ack(held[4])
    with joined(store) as two:
        again = drain(two, count=5)
        assert sorted(bodies(again)) == sorted(bodies(held[3:]))
        assert {each.attempt for each in again} == {2}


def test_an_idle_member_has_no_share_until_it_polls(store: Store) -> None:
    fill(store, 8)
    with joined(store, idle_ms=50) as idle, joined(store, idle_ms=50) as other:
        until(lambda: other.poll(1) is not None and len(other.assigned()) == 4)
        until(lambda: idle.poll(1) is not None and bool(idle.assigned()))


def test_a_message_comes_again_once_its_time_is_over(store: Store) -> None:
    fill(store, 1)
    clock = Clock()
    with joined(store, invisible_ms=1000) as consumer:
        clock.set_for(consumer)
        (first,) = drain(consumer, count=1)
        clock.ms += 999
        assert consumer.poll() == []
        assert consumer.renew(first)
        clock.ms += 999
        assert consumer.poll() == []
        clock.ms += 1
        (again,) = consumer.poll()
        assert (again.attempt, again.topic) == (2, "t")
        assert not consumer.renew(first)
        assert not consumer.ack(first)
        assert not consumer.nack(first)
        assert consumer.ack(again)
        clock.ms += 100_000
        assert consumer.poll() == []


def test_a_renewal_leaves_others_their_time(store: Store) -> None:
    fill(store, 3, queues=1)
    clock = Clock()
    with joined(store) as member:
        clock.set_for(member)
        held = member.poll(3)
        assert member.renew(held[0], 10)
        clock.ms += 20
        assert member.poll() == []
        assert member.ack(*held)


def test_a_wall_clock_that_is_set_delays_nothing_and_hands_out_nothing_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 1)
    real, hour_ns = time.time_ns, 3_600_000_000_000
    with joined(store, invisible_ms=50) as member:
        (held,) = drain(member, count=1)
        monkeypatch.setattr(time, "time_ns", lambda: real() - hour_ns)
        (again,) = drain(member, count=1)
        assert member.renew(again, 60_000)
        monkeypatch.setattr(time, "time_ns", lambda: real() + hour_ns)
        assert member.poll() == []
        assert (again.message, again.attempt) == (held.message, 2)


def test_what_failed_goes_through_the_retry_topic_and_ends_as_a_dead_letter(store: Store) -> None:
    put(store, 7, tags="A", keys="k")
    clock = Clock()
    with joined(store, tags="A", max_attempts=3) as consumer:
        clock.set_for(consumer)
        topics = []
        for attempt, delay_ms in ((1, 10_000), (2, 30_000), (3, 60_000)):
            (found,) = drain(consumer, count=1)
            assert (found.attempt, found.origin_topic) == (attempt, "t")
            topics.append(found.topic)
            assert consumer.nack(found)
            clock.ms += delay_ms - 1
            assert consumer.poll() == []
            clock.ms += 1
        assert topics == ["t", "%RETRY%g", "%RETRY%g"]
        assert consumer.poll() == []
        consumer.commit()
    assert store.wait_dispatched()
    (dead,) = store.get("%DLQ%g", 0, 0).messages
    (origin,) = store.get("t", 0, 0).messages
    assert (dead.body, dead.reconsume_times, dead.tags, dead.keys) == (b"7", 3, "A", ["k"])
    assert dead.properties["DLQ_ORIGIN_TOPIC"] == dead.properties["RETRY_TOPIC"] == "t"
    assert dead.properties["DLQ_ORIGIN_MESSAGE_ID"] == origin.message_id
    assert store.groups() == {"g": {"t": {0: 1}, "%RETRY%g": {0: 2}}}


def test_no_retry_is_put_before_its_delay_is_over(store: Store) -> None:
    fill(store, 1)
    clock = Clock()
    with joined(store) as member:
        clock.set_for(member)
        (found,) = drain(member, count=1)
        assert member.nack(found)
        for ms, there in ((9_999, False), (1, True)):
            clock.ms += ms
            member.poll()
            assert store.wait_dispatched()
            assert ("%RETRY%g" in store.topics()) is there


@pytest.mark.parametrize("most", [1, 9])
def test_a_message_that_cannot_be_set_aside_stays(
    store: Store, most: int, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 1)
    clock = Clock()

    def refuse(_: Message) -> None:
        raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full")

    with joined(store, max_attempts=most, invisible_ms=1000) as member:
        clock.set_for(member)
        (found,) = drain(member, count=1)
        put, member._access = store.put, attrs.evolve(member._access, put=refuse)
        assert member.nack(found, 0)
        assert member.poll() == []
        assert "the disk is full" in caplog.text
        member.commit()
        assert committed(store)[0] == 0
        member._access = attrs.evolve(member._access, put=put)
        clock.ms += 1000
        member.poll()
        member.commit()
        assert committed(store)[0] == 1
        assert store.wait_dispatched()
        (aside,) = store.get("%RETRY%g" if most > 1 else "%DLQ%g", 0, 0).messages
        assert aside.reconsume_times == 1


@pytest.mark.parametrize(
    ("group", "properties"), [("g", {"a": "v" * 32_700}), ("g" * 255, {})], ids=["long", "topic"]
)
@pytest.mark.parametrize("most", [1, 9])
def test_a_message_whose_copy_is_refused_for_good_is_handed_out_in_its_place(
    store: Store, most: int, group: str, properties: dict[str, str]
) -> None:
    """Its properties, or the name of the topic of retries or dead letters, are too long."""
    put(store, 0, properties=properties)
    put(store, 1)
    clock = Clock()
    with store.subscribe(group, "t", max_attempts=most) as member:
        clock.set_for(member)
        held, other = member.poll()
        assert member.ack(other)
        for attempt in (1, 2, 3):
            assert held.attempt == attempt
            assert member.nack(held, 10)
            assert member.poll() == []
            clock.ms += 10
            (held,) = member.poll()
            assert bodies([held]) == [0]
            member.commit()
            assert store.groups()[group]["t"] == {0: 0}
        assert member.ack(held)
    assert store.groups()[group]["t"] == {0: 2}
    assert store.topics() == ["t"]


def test_retries_that_rocketmq_wrote_are_handed_out(store: Store) -> None:
    put(store, 1, "%RETRY%g", reconsume_times=4)
    with store.subscribe("g", "t") as consumer:
        (found,) = drain(consumer, count=1)
        assert found.attempt == 5


def test_the_order_of_a_queue(store: Store) -> None:
    fill(store, 12, queues=1)
    clock = Clock()
    with joined(store, orderly=True) as one, joined(store, orderly=True) as two:
        clock.set_for(one, two)
        held = drain(one, two, count=3, most=3)
        assert bodies(held) == [0, 1, 2]
        assert one.poll() == two.poll() == [], "nothing of a queue while any of it is out"
        assert one.ack(held[0])
        assert one.nack(held[1])
        assert not one.ack(held[2]), "a later message is returned as well"
        again = one.poll(2) or two.poll(2)
        assert bodies(again) == [1, 2]
        assert [each.attempt for each in again] == [2, 1]
        clock.ms += 60_000
        last = one.poll(5) or two.poll(5)
        assert bodies(last) == [1, 2], "the time of both is over, and nothing later comes before"
        assert one.ack(*last)
        assert bodies(one.poll(5) or two.poll(5)) == [3, 4, 5, 6, 7]


def test_broadcasting_members_have_all_and_go_on(store: Store) -> None:
    fill(store, 8)
    with joined(store, broadcast="a") as one, joined(store, broadcast="b") as two:
        assert sorted(bodies(drain(one, count=8))) == list(range(8))
        held = drain(two, count=8)
        assert two.ack(*held)
        with pytest.raises(SettingsError, match="give another name"):
            joined(store, broadcast="a")
    assert store.groups() == {}
    with joined(store, broadcast="b") as two:
        assert two.poll() == []
        fill(store, 1)
        assert bodies(drain(two, count=1)) == [0]


def test_several_topics_with_their_tags(store: Store) -> None:
    """Messages of other tags are passed over, and committed."""
    for topic in ("a", "b"):
        for n, tag in enumerate("XYZX"):
            put(store, n, topic, tags=tag)
    with store.subscribe("g", {"a": "W", "b": "Y || Z"}, start="earliest") as consumer:
        found = drain(consumer, count=2)
        assert [(each.topic, *bodies([each])) for each in found] == [("b", 1), ("b", 2)]
        consumer.ack(*found)
        assert consumer.poll() == []
        consumer.commit()
        assert store.groups()["g"] == {"a": {0: 4}, "b": {0: 4}}


def test_the_committed_offset_is_the_first_one_not_acknowledged(store: Store) -> None:
    fill(store, 10, queues=1)
    with joined(store) as consumer:
        held = drain(consumer, count=8)
        consumer.ack(*held[:2], *held[4:])
        consumer.commit()
        assert committed(store) == {0: 2}
        consumer.ack(*held[2:4])
    assert committed(store) == {0: len(held)}, "a member that leaves commits"
    with store.consumer("g", "t", [0]) as by_hand:
        assert by_hand.position(0) == len(held)


def test_a_commit_killed_halfway_is_not_taken_for_that_of_another(store: Store) -> None:
    fill(store, 10, queues=1)
    with joined(store) as member:
        held = drain(member, count=10)
        member.ack(*held[:4])
        changed = member._state.intend()
        assert changed == {("t", 0): 4}
        offsets = store._queue_access().offsets
        offsets.commit_all([("g", "t", {0: 4})])  # killed here: not noted as stored
        assert member._commits.adopt() == {}
        member.ack(*held[4:5])
        member.commit()
        assert committed(store) == {0: 5}


def test_a_group_whose_offsets_were_removed_begins_anew(store: Store) -> None:
    fill(store, 4, queues=1)
    with joined(store) as member:
        member.ack(*drain(member, count=4))
        member.commit()
        store.forget_offsets("g")
        assert bodies(drain(member, count=4)) == [0, 1, 2, 3]


def test_the_state_of_a_topic_outlives_its_subscription(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 4, "a", queues=1)
    fill(store, 2, "b", queues=1)
    with store.subscribe("g", "a", start="earliest") as member:
        member.ack(*member.poll(2))
        held = member.poll(1)
    with store.subscribe("g", "b", start="earliest") as member:
        assert len(member.poll()) == 2
        member.commit()
    with store.subscribe("g", "a", start="earliest") as member:
        again, last = member.poll()
        assert (bodies([again, last]), again.attempt, last.attempt) == ([2, 3], 2, 1)
        assert again.message == held[0].message
    assert caplog.text == ""


def test_the_state_outlives_all_members(store: Store) -> None:
    fill(store, 6, queues=1)
    member = joined(store, invisible_ms=1000)
    member.ack(*member.poll(2))
    (held,) = member.poll(1)
    del member  # as after a kill: it neither leaves nor commits
    assert store.groups() == {}
    with joined(store, invisible_ms=1000) as member:
        again, *new = member.poll()
        assert (again.message, again.attempt) == (held.message, 2), "a dead member holds nothing"
        assert bodies(new) == [3, 4, 5]


@pytest.mark.parametrize("is_clean", [True, False])
def test_attempts_outlive_a_reboot_after_a_clean_stop(tmp_path: Path, is_clean: bool) -> None:
    """After a power cut the group goes on at its committed offsets."""
    with open_store(tmp_path) as store:
        fill(store, 4, queues=1)
        member = joined(store)
        held = member.poll(3)
        assert member.ack(held[0])
        member.commit()
        assert member.nack(held[1], 60_000)
        if is_clean:
            member.close()
        del member
    rebooted(tmp_path)
    with open_store(tmp_path) as store, joined(store) as member:
        clock = Clock(boot_ms())
        clock.set_for(member)
        found = member.poll()
        seen = [(body, each.attempt) for body, each in zip(bodies(found), found, strict=True)]
        assert seen == ([(2, 2), (3, 1)] if is_clean else [(1, 1), (2, 1), (3, 1)])
        assert member.ack(*found)
        clock.ms += 60_000
        if is_clean:
            (again,) = drain(member, count=1)
            assert (bodies([again]), again.attempt, again.topic) == ([1], 2, "%RETRY%g")


@pytest.mark.parametrize("how", ["killed", "expired", "closed"])
def test_what_a_member_took_in_advance_was_never_handed_out(store: Store, how: str) -> None:
    fill(store, 60, queues=1)
    clock, held = Clock(), list[Delivery]()
    member = joined(store, invisible_ms=1000)
    clock.set_for(member)
    while not member._reserve:
        held += member.poll(2)
    assert member.ack(*held[1:])
    status = store.group_status("g")
    assert [each.queue_offset for each in status.in_flight] == [0]
    assert status.next_offsets["t", 0] == len(held)
    with joined(store, invisible_ms=1000) as other:
        clock.set_for(other)
        if how == "expired":
            clock.ms += 1000
        elif how == "closed":
            member.close()
        else:
            del member
        other._turn_at = 0.0
        found = member.poll(60) if how == "expired" else other.poll(60)
        assert sorted(bodies(found)) == [0, *range(len(held), 60)]
        assert {each.queue_offset for each in found if each.attempt != 1} == {0}
        if how == "expired":
            assert not member.ack(held[0])
            assert member.ack(*found)


def test_a_member_notices_that_another_one_took_what_it_had_in_advance(store: Store) -> None:
    fill(store, 60, queues=1)
    clock, held = Clock(), list[Delivery]()
    with joined(store, invisible_ms=1000) as member, joined(store) as other:
        clock.set_for(member, other)
        member._turn_at = other._turn_at = 0.0
        assert not other.poll(1), "the queue is the first member's"
        while not member._reserve:
            held += member.poll(2)
        clock.ms += 1000
        state = other._state
        due = state.due([state.queues()["t", 0]], clock.ms)
        until_ms = clock.ms + 60_000
        claims = state.claim(due, 60, hand_out(clock.ms, 0), clock.ms, until_ms)
        assert [each.offset for each in claims] == list(range(len(held)))
        assert not member.ack(*held)
        found = member.poll(60)
        assert bodies(found) == list(range(len(held), 60))
        assert {each.attempt for each in found} == {1}
        assert member.ack(*found)


def test_a_group_goes_on_at_its_committed_offsets_if_its_state_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(tmp_path) as store:
        fill(store, 3, queues=1)
        with joined(store) as member:
            member.ack(*member.poll(2))
    for content in (b"no state" * 9000, b"x"):
        state_path(tmp_path, "g").write_bytes(content)
        with open_store(tmp_path) as store, joined(store) as member:
            assert bodies(member.poll()) == [2]
    assert caplog.text.count("it is damaged; its group continues") == 2


def test_the_state_in_a_copy_of_a_store_does_not_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(tmp_path / "store") as store:
        fill(store, 4, queues=1)
        with joined(store) as member:
            first, *_ = member.poll()
            member.ack(first)
    copy_store(tmp_path / "store", tmp_path / "copy")
    for place, attempts in (("store", [2, 2, 2]), ("copy", [1, 1, 1]), ("copy", [2, 2, 2])):
        with open_store(tmp_path / place) as store, joined(store) as member:
            found = member.poll()
            assert bodies(found) == [1, 2, 3]
            assert [each.attempt for each in found] == attempts
    assert caplog.text.count("it is a copy") == 1


def test_threads_share_one_member(store: Store) -> None:
    fill(store, 200)
    seen: list[int] = []
    with joined(store) as member:

        def work() -> None:
            for each in member:
                seen.extend(bodies([each]))
                member.ack(each)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for each in threads:
            each.start()
        until(lambda: len(seen) >= 200)
        member.close()
        for each in threads:
            each.join(60)
    assert sorted(seen) == list(range(200))
    with pytest.raises(StoreClosed):
        member.poll()


def test_a_waiting_poll_gets_what_arrives(store: Store) -> None:
    fill(store, 4)
    with joined(store, start="latest") as member:
        threading.Timer(0.05, store.put, [Message("t", b"9", queue_id=1)]).start()
        assert bodies(member.poll(wait_ms=60_000)) == [9]


def test_a_forked_child_is_no_member(store: Store) -> None:
    fill(store, 4)
    with joined(store) as member:
        held = drain(member, count=4)
        child = os.fork()
        if not child:
            try:
                member.poll()
            except StoreClosed:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert member.ack(*held)


def test_members_with_other_subscriptions_are_refused(store: Store) -> None:
    match = "all members of a group need the same"
    with joined(store), pytest.raises(SettingsError, match=match):
        joined(store, tags="A")
    joined(store, tags="A").close()


@pytest.mark.usefixtures("store")
def test_a_reader_cannot_share(tmp_path: Path) -> None:
    reading = lakelog.open(tmp_path, mode="read")
    with reading as reader, pytest.raises(StoreReadOnly, match="mode='write'"):
        joined(reader)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"topics": []}, SettingsError, "one topic or more"),
        ({"topics": 5}, WrongType, "topics is 5"),
        ({"group": "a b"}, SettingsError, "consumer group's name"),
        ({"tags": "||"}, WrongValue, "contain no tag"),
        ({"topics": {"t": "A"}, "tags": "B"}, SettingsError, "give the tags"),
        ({"start": "first"}, SettingsError, "not a place"),
        ({"invisible_ms": 0}, WrongValue, "invisible_ms is 0"),
        ({"max_attempts": 0}, WrongValue, "max_attempts is 0"),
        ({"broadcast": "a@b"}, SettingsError, "name"),
        ({"tags": "x", "filter": "n = 1"}, SettingsError, "tags"),
        ({"filter": "n ="}, SettingsError, "wrong at character"),
        ({"filter": 5}, WrongType, "filter"),
    ],
)
def test_bad_arguments(
    store: Store, change: dict[str, Any], error: type[Exception], match: str
) -> None:
    given = {"group": "g", "topics": "t", **change}
    with pytest.raises(error, match=match):
        store.subscribe(given.pop("group"), given.pop("topics"), **given)
