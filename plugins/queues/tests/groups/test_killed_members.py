"""Processes share a group while members are killed, leave and join."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from plugins.queues.tests.groups.processes import (
    Notes,
    check_acknowledged,
    check_exclusive,
    check_order,
    dying_member,
    mortal,
    started,
    steps,
)
from plugins.queues.tests.groups.support import QUEUES, fill, open_store
from tests.support import sampling
from tests.support.waiting import until


def a_round(path: Path, seed: int, *, members: int, kills: int, messages: int, **more: Any) -> None:
    chance, store_path, notes = random.Random(seed), path / "store", path / "notes"
    options = {"invisible_ms": 700, "commit_interval_ms": 100, **more}
    with open_store(store_path) as store:
        fill(store, messages)

    def one_more() -> ForkServerProcess:
        return started(store_path, notes, options, chance.randrange(1 << 30))

    def done() -> set[int]:
        return {each.body for each in steps(notes) if each.word == "done"}

    def is_reached(count: int) -> bool:
        return len(done()) >= count

    killed = set[int | None]()
    running = [one_more() for _ in range(members)]
    try:
        for number in range(kills):
            reached = (number + 1) * messages // (kills + 1)
            until(partial(is_reached, reached))
            victim = running.pop(chance.randrange(len(running)))
            victim.kill()
            killed.add(victim.pid)
            running.append(one_more())
            victim.join(30)
        until(lambda: len(done()) == messages, seconds=120)
    finally:
        for each in running:
            each.kill()
        for each in running:
            each.join(30)
    found = list(steps(notes))
    check_exclusive(found, killed, orderly=more["orderly"])
    if more["orderly"]:
        check_order(found)
    check_end(store_path, options, messages)


def a_round_of_deaths(path: Path, seed: int, *, deaths: int, messages: int) -> Counter[str]:
    """Members die at points of their calls, or at random instants, until so many are dead.

    Then all are killed, and another process gets what is left. Returns what there was of each.
    """
    chance, store_path, notes_path = random.Random(seed), path / "store", path / "notes"
    settings = {"flush": chance.choice(["none", "group-commit"])}
    with open_store(store_path, **settings) as store:
        fill(store, messages)
    killed = _killed(chance, deaths, store_path, notes_path, settings)
    notes = Notes(notes_path)
    with open_store(store_path, **settings) as store, dying_member(store) as last:
        while found := last.poll(64):
            for each in found:
                notes.add("taken", each)
            assert last.ack(*found)
            for each in found:
                notes.add("done", each)
        last.commit()
        ends = {(each.topic, each.queue_id): each.max_offset for each in store.queues()}
        for topic, table in store.groups()["g"].items():
            assert all(at == ends[topic, queue] for queue, at in table.items())
    noted = list(steps(notes_path))
    check_exclusive(noted, killed, orderly=False)
    check_acknowledged(noted)
    # An acknowledgement in which its process was killed may count.
    assert {each.body for each in noted if each.word in ("begin", "done")} == set(range(messages))
    taken = Counter(each.record for each in noted if each.word == "taken")
    words = Counter(each.word for each in noted)
    repeats = sum(taken.values()) - len(taken)
    return Counter(kills=len(killed), acks=words["done"], nacks=words["failed"], repeats=repeats)


def _killed(chance: random.Random, deaths: int, *arguments: Any) -> set[int | None]:
    """Let members consume until so many are dead, and kill the others; returns all of them."""
    members, begun, dead = chance.randrange(2, 5), list[ForkServerProcess](), set[int | None]()

    def next_death() -> bool:
        new = {each.pid for each in begun if each.exitcode is not None} - dead
        dead.update(new)
        return bool(new)

    try:
        while len(dead) < deaths:
            while len(begun) - len(dead) < members:
                begun.append(started(*arguments, chance.randrange(1 << 30), target=mortal))
            if chance.random() < 0.2:
                time.sleep(chance.random() * 0.5)
                chance.choice(begun).kill()
            until(next_death, seconds=120)
    finally:
        for each in begun:
            each.kill()
        for each in begun:
            each.join(30)
    assert {each.exitcode for each in begun} == {-signal.SIGKILL}
    return {each.pid for each in begun}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", [0, 1, pytest.param(50, marks=pytest.mark.slow)])
def test_members_die_at_points_of_their_calls(tmp_path: Path, part: int) -> None:
    seed = sampling.chance().randrange(1 << 30)
    for number in range(max(part, 1)):
        path = tmp_path / str(number)
        path.mkdir()
        a_round_of_deaths(path, seed + number, deaths=6, messages=300)


def check_end(path: Path, options: dict[str, Any], messages: int) -> None:
    """The last member gets only messages that dead members had, and commits all."""
    with open_store(path) as store, store.subscribe("g", "t", **options) as last:
        topics = ["t", "%RETRY%g"]

        def is_over() -> bool:
            last.ack(*last.poll(64))
            last.commit()
            ends = {(each.topic, each.queue_id): each.max_offset for each in store.queues()}
            tables = store.groups().get("g", {})
            reached = {(t, q): at for t in topics for q, at in tables.get(t, {}).items()}
            return reached == {queue: end for queue, end in ends.items() if queue[0] in topics}

        until(is_over, seconds=120)
        assert sum(store.groups()["g"]["t"].values()) == messages
        assert len(store.groups()["g"]["t"]) == QUEUES


@pytest.mark.parametrize("orderly", [False, True])
def test_members_are_killed(tmp_path: Path, orderly: bool) -> None:
    a_round(
        tmp_path,
        sampling.chance().randrange(1 << 30),
        members=3,
        kills=3,
        messages=120,
        orderly=orderly,
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("seed", range(50))
def test_many_members_are_killed(tmp_path: Path, orderly: bool, seed: int) -> None:
    a_round(tmp_path, seed, members=8, kills=12, messages=600, orderly=orderly)
