"""Exceptions of signal handlers, and kills, at the points of poll, ack, nack, renew and commit."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from lakelog import Delivery, GroupConsumer, Store
from lakelog_testing.interrupting import interrupted
from plugins.queues.tests.groups.support import bodies, committed, fill, joined, open_store
from tests.support import sampling

COUNT: Final = 6
CALLS: Final[dict[str, Callable[[GroupConsumer, list[Delivery]], object]]] = {
    "poll": lambda member, _: member.poll(4),
    "ack": lambda member, held: member.ack(*held),
    "nack": lambda member, held: member.nack(held[1], 0),
    "renew": lambda member, held: member.renew(held[0]),
    "commit": lambda member, _: member.commit(),
}
_SPAWN: Final = multiprocessing.get_context("spawn")


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


def die(path: Path, call: str, at: int) -> None:
    """Be killed at a point of a call; end well if it has fewer points."""
    with open_store(path) as store, joined(store) as member:
        held = [] if call == "poll" else member.poll(3)
        act = lambda: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731  # one line is enough
        if interrupted(partial(CALLS[call], member, held), at, act=act).place is None:
            os._exit(1)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("part", range(3))
def test_a_kill_at_any_point_leaves_a_state_that_others_can_use(
    store: Store, call: str, part: int
) -> None:
    fill(store, COUNT, queues=2)
    at = part * 25 + sampling.chance().randrange(25)
    process = _SPAWN.Process(target=die, args=(store.path, call, at))
    process.start()
    process.join(120)
    with joined(store) as member:
        left = finish(member)
    if process.exitcode == -signal.SIGKILL and call != "ack":
        assert sorted(bodies(left)) == list(range(COUNT))
    assert committed(store) == {0: 3, 1: 3}
