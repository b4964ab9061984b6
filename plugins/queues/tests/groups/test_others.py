"""What members of a group may not take from each other, or from other programs."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import attrs
import pytest

import lakelog
from lakelog import Delivery, Message, Store
from lakelog.errors import StoreError
from lakelog_queues.consumers.offsettable import OffsetTable
from lakelog_queues.finding.results import PlacedResult
from lakelog_queues.groups.consumer import boot_ms
from plugins.queues.tests.groups.processes import started
from plugins.queues.tests.groups.support import (
    Clock,
    bodies,
    committed,
    drain,
    fill,
    joined,
    open_store,
)
from tests.support.waiting import until


@pytest.mark.parametrize("orderly", [False, True])
def test_what_others_hold_stays_theirs_when_a_member_leaves(store: Store, orderly: bool) -> None:
    fill(store, 8)
    with joined(store, orderly=orderly) as one:
        held = drain(one, count=8)
        joined(store, orderly=orderly).close()
        assert one.poll() == []
        with joined(store, orderly=orderly) as two:
            assert two.poll() == []
        assert one.ack(*held)


def test_a_stopped_member_keeps_its_messages_for_their_time_and_holds_up_nobody(
    store: Store,
) -> None:
    """Ctrl-Z, or a frozen container: it lives, and its messages are its own until then."""
    fill(store, 8)
    process = started(store.path, target=hold_and_stop)
    stat = Path(f"/proc/{process.pid}/stat")
    until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
    try:
        with joined(store, idle_ms=1) as other:
            clock = Clock(boot_ms() + 2)
            clock.set_for(other)
            other._turn_at = 0.0  # it looks for idle members at once
            found = drain(other, count=2)
            assert other.ack(*found)
            other.commit()
            assert other.poll() == []
            clock.ms += 60_000
            found += drain(other, count=6)
            assert sorted(bodies(found)) == list(range(8))
            assert other.ack(*found[2:])
    finally:
        process.kill()
        process.join(30)
    assert committed(store) == dict.fromkeys(range(4), 2)


def hold_and_stop(path: Path) -> None:
    with open_store(path) as store, joined(store, invisible_ms=60_000) as member:
        member.poll(6)
        os.kill(os.getpid(), signal.SIGSTOP)


def test_members_that_read_a_queue_at_once_share_no_message(store: Store) -> None:
    fill(store, 8)
    found: list[Delivery] = []
    with joined(store) as one, joined(store) as two:
        one._turn = lambda: None  # type: ignore[method-assign]  # it does not know the other yet
        get = one._access.get

        def get_late(*arguments: Any, **named: Any) -> PlacedResult:
            result = get(*arguments, **named)
            if arguments[:2] in two.assigned():
                found.extend(two.poll())
            return result

        assert len(one.assigned()) == 4
        one._access = attrs.evolve(one._access, get=get_late)
        first = one.poll()
        assert found
        found += [*first, *drain(one, two, count=8 - len(first) - len(found))]
        assert sorted(bodies(found)) == list(range(8))


def test_who_joins_after_a_member_died_has_its_queues_at_once(store: Store) -> None:
    fill(store, 8)
    dropped = joined(store)
    del dropped
    with joined(store) as other:
        assert len(other.assigned()) == 4


def test_an_offset_that_others_set_ahead_drops_what_is_out(store: Store) -> None:
    fill(store, 10, queues=1)
    with joined(store) as member:
        held = drain(member, count=10)
        member.commit()
        store.commit_offsets([("g", "t", {0: 7})])
        again = drain(member, count=3)
        assert bodies(again) == [7, 8, 9]
        assert not member.ack(held[0])
        member.commit()
        assert store.groups()["g"]["t"] == {0: 7}


@pytest.mark.parametrize("is_rocketmq", [False, True])
def test_a_commit_does_not_undo_a_reset_by_others(store: Store, is_rocketmq: bool) -> None:
    """RocketMQ writes its file only; lakelog tells the members of the group."""
    others = store._queue_access().offsets.commit_all if is_rocketmq else store.commit_offsets
    fill(store, 10, queues=1)
    with joined(store) as member:
        held = drain(member, count=10)
        member.ack(*held[:6])
        member.commit()
        others([("g", "t", {0: 2})])
        member.ack(*held[6:])
        member.commit()
        assert store.groups()["g"]["t"] == {0: 2}


def test_a_lease_in_the_place_of_a_dropped_one_is_another_one(store: Store) -> None:
    """Both are of one poll, and the offset was set anew in between."""
    fill(store, 2, queues=2)
    with joined(store, orderly=True) as member:
        (first,) = member.poll(1)
        assert first.queue_id == 0
        member.nack(first)
        get = member._access.get

        def get_after_a_reset(topic: str, queue_id: int, *more: Any, **named: Any) -> PlacedResult:
            if queue_id == 1:
                store.commit_offsets([("g", "t", {0: 0})])
            return get(topic, queue_id, *more, **named)

        member._access = attrs.evolve(member._access, get=get_after_a_reset)
        again, other = member.poll(2)
        assert (again.queue_id, other.queue_id) == (0, 1)
        assert not member.ack(again)
        assert member.ack(other)


class TimeLimitError(Exception):
    """Raised by a signal handler."""


@pytest.mark.parametrize("error", [TimeLimitError(), StoreError("the disk is full")])
def test_a_commit_that_failed_sets_back_no_later_one_of_another_process(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    def fail(_table: OffsetTable) -> None:
        raise error

    fill(store, 10, queues=1)
    with lakelog.open(store.path) as other, joined(other) as survivor, joined(store) as one:
        held = drain(survivor, one, count=10)
        assert survivor.ack(*held[:4])
        with monkeypatch.context() as patched:
            patched.setattr(OffsetTable, "_check_durable", fail)
            with pytest.raises(type(error)):
                one.commit()
        survivor._turn()
        assert survivor.ack(*held[4:7])
        survivor.commit()
        one._turn()
        one.commit()
        store.commit_offsets([("another", "t", {0: 1})])  # as any write of this process
        survivor._turn()
        assert other.groups()["g"] == {"t": {0: 7}}
        assert survivor.ack(*held[7:]), "they were not dropped"
    assert caplog.text == ""


def test_a_reset_to_the_committed_offset_hands_out_again(store: Store) -> None:
    """What members had, and what they have acknowledged but not committed, comes again."""
    fill(store, 6, queues=1)
    with joined(store) as one, joined(store) as two:
        held = drain(one, two, count=4, most=4)
        member = one if one.assigned() else two
        assert member.ack(held[0])
        member.commit()
        assert member.ack(held[2])
        store.commit_offsets([("g", "t", {0: 1})])
        assert not member.ack(held[1])
        again = drain(one, two, count=5)
        assert bodies(again) == [1, 2, 3, 4, 5]
        assert {each.attempt for each in again} == {1}


def test_a_reset_that_was_refused_keeps_nobody_from_committing(store: Store) -> None:
    """Also while its exception is kept, and with it all that its functions had."""
    fill(store, 2, queues=1)
    with joined(store) as member:
        member.ack(*drain(member, count=2))
        with pytest.raises(StoreError, match="out of range") as kept:
            store.commit_offsets([("g", "t", {0: -1})])
        member.commit()
        assert store.groups()["g"]["t"] == {0: 2}
        del kept


def test_a_queue_made_while_nobody_was_there_is_read_from_its_first_message(store: Store) -> None:
    fill(store, 4)
    with joined(store, start="latest") as member:
        assert member.poll() == []
    store.put(Message("t", b"101", queue_id=9))
    assert store.wait_dispatched()
    with joined(store, start="latest") as member:
        assert bodies(member.poll()) == [101]


def test_a_state_that_another_program_cut_is_made_anew_at_a_join(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 4, queues=1)
    with joined(store) as member:
        member.ack(*drain(member, count=4)[:2])
    (file,) = store.path.glob("lakelog/groups/g.state")
    with file.open("r+b") as cut:
        cut.truncate(file.stat().st_size // 2)
    with joined(store) as other:
        assert f"{file}: it is damaged" in caplog.text
        assert bodies(drain(other, count=2)) == [2, 3]


def test_a_member_sees_once_a_second_whether_its_state_was_cut(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is not cut in earnest: the end of its map would kill this process."""
    with joined(store) as member:
        file = member._state.file._file
        with monkeypatch.context() as patched:
            patched.setattr(type(file), "size", lambda _: 4096)
            with pytest.raises(StoreError, match="another program has cut the file"):
                member._turn()
