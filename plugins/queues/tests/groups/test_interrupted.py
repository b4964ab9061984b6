"""Exceptions of signal handlers, and kills, at the points of poll, ack, nack, renew and commit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from lakelog import Delivery, GroupConsumer, Store
from lakelog_testing.interrupting import interrupted
from plugins.queues.tests.groups.processes import kill_this_process, started
from plugins.queues.tests.groups.support import bodies, fill, open_store
from tests.support import sampling

COUNT: Final = 6
CALLS: Final[dict[str, Callable[[GroupConsumer, list[Delivery]], object]]] = {
    "poll": lambda member, _: member.poll(4),
    "ack": lambda member, held: member.ack(*held),
    "nack": lambda member, held: member.nack(held[1], 0),
    "renew": lambda member, held: member.renew(held[0]),
    "commit": lambda member, _: member.commit(),
}


def finish(member: GroupConsumer) -> list[Delivery]:
    """Get and acknowledge all that is left."""
    found: list[Delivery] = []
    while more := member.poll():
        assert member.ack(*more)
        found += more
    return found


def places(found: Iterable[Delivery]) -> set[tuple[int, int]]:
    return {(each.queue_id, each.queue_offset) for each in found}


@sampling.at_every(5)
@pytest.mark.parametrize("call", CALLS)
def test_an_exception_at_any_point_leaves_a_state_that_all_can_use(
    store: Store, call: str, stride: int
) -> None:
    fill(store, COUNT, queues=2)
    everything = {(queue, at) for queue in range(2) for at in range(COUNT // 2)}
    for point in sampling.every(stride * 9 if call == "commit" else stride):
        group, orderly = f"g{point}", call == "nack"
        with store.subscribe(group, "t", orderly=orderly) as member:
            held = [] if call == "poll" else member.poll(3)
            outcome = interrupted(partial(CALLS[call], member, held), point)
            if outcome.place is None:
                break
            acked = [each for each in held if member.ack(each)]
            with store.subscribe(group, "t", orderly=orderly) as other:  # it is not locked out
                left = finish(member) + finish(other) + finish(member)
            done = held if call == "ack" else acked
            assert places(left) | places(done) == everything, outcome.place
            if call == "poll" and outcome.was_raised:
                assert {each.attempt for each in left} == {1}, outcome.place
        assert store.groups()[group]["t"] == {0: 3, 1: 3}, outcome.place
        store.forget_offsets(group)  # the points of a commit grow with the file


@pytest.mark.parametrize("is_dropped", [False, True])
@sampling.at_every(12)
def test_an_exception_as_a_member_leaves_keeps_nothing_with_it(
    store: Store, stride: int, is_dropped: bool
) -> None:
    """Once it is closed again, or nothing refers to it."""
    fill(store, COUNT, queues=2)
    for point in sampling.every(stride):
        group = f"g{point}"
        members = [store.subscribe(group, "t")]
        assert len(members[0].poll()) == COUNT
        outcome = interrupted(members[0].close, point)
        if is_dropped:
            members.clear()
        for each in members:
            each.close()
        with store.subscribe(group, "t") as other:
            assert places(finish(other)) == {(at % 2, at // 2) for at in range(COUNT)}, outcome
        if outcome.place is None:
            break
        store.forget_offsets(group)


def die(path: Path, group: str, call: str, at: int, settings: dict[str, Any]) -> None:
    """Be killed at a point of a call; end well if it has fewer points."""
    with open_store(path, **settings) as store, store.subscribe(group, "t") as member:
        held = [] if call == "poll" else member.poll(3)
        interrupted(partial(CALLS[call], member, held), at, act=kill_this_process)
        os._exit(0)


KILLED_AT: Final = {"poll": 160, "ack": 25, "nack": 20, "renew": 20, "commit": 300}
"""Of so many points of each call, one is tried in a run."""
EACH: Final = [pytest.param(call, 1, marks=pytest.mark.slow) for call in CALLS]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("call", "stride"), [*KILLED_AT.items(), *EACH])
def test_a_kill_at_any_point_leaves_a_state_that_others_can_use(
    store: Store, call: str, stride: int
) -> None:
    fill(store, COUNT, queues=2)
    for at in sampling.every(stride):
        group = f"g{at}"
        ways: dict[str, Any] = sampling.chance().choice([{}, {"accelerator": "none"}])
        process = started(store.path, group, call, at, ways, target=die)
        process.join(120)
        with store.subscribe(group, "t") as member:
            left = sorted(bodies(finish(member)))
        assert process.exitcode in (0, -signal.SIGKILL)
        assert left == sorted(set(left)), at
        assert set(range(COUNT)) - set(left) <= (set(range(3)) if call == "ack" else set()), at
        assert store.groups()[group]["t"] == {0: 3, 1: 3}
        store.forget_offsets(group)
        if process.exitcode == 0:
            break


def acknowledge_and_die(path: Path, group: str, at: int, is_killed: bool) -> None:
    """Acknowledge two messages, and end in a commit, or after one that an exception ended."""
    with open_store(path) as store, store.subscribe(group, "t") as member:
        assert member.ack(*member.poll(2))
        act = kill_this_process if is_killed else None
        interrupted(member.commit, at, act=act)
        member._turn_at = 0.0  # it looks for offsets that others committed
        member.poll(1)
        kill_this_process()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("count", [4, pytest.param(200, marks=pytest.mark.slow)])
def test_commits_that_ended_early_are_not_taken_for_those_of_another_program(
    store: Store, count: int, is_killed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, COUNT)
    for number in range(count):
        group = f"g{number}"
        points = [sampling.chance().randrange(1300), number * 1300 // count]
        for at in points:
            process = started(store.path, group, at, is_killed, target=acknowledge_and_die)
            process.join(120)
            assert process.exitcode == -signal.SIGKILL
        with store.subscribe(group, "t") as member:
            assert len(finish(member)) == COUNT - 4, points
        store.forget_offsets(group)
    assert "another program" not in caplog.text
