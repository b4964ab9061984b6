"""Processes that are killed: what was acknowledged is in the log once, in each producer's order."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Queue
from random import Random
from threading import Event, Thread
from typing import Any

import pytest

from core.tests.attach.support import (
    AnHeir,
    Process,
    a_program,
    an_owned_hub,
    an_owner,
    offsets_of,
    open_alone,
    until,
)
from lakelog import Message
from lakelog.attach.producer import Producer, connect
from lakelog.errors import OutcomeUnknown, PutRefused, StoreFailed
from lakelog.files import RealFileSystem
from lakelog.pages.pageview import PageView
from lakelog.ring.layout import AT_POSITION, AT_STAMP
from lakelog.testing.signals import hold

SMALL = 32 << 10
MORE_BYTES = 50_000

PROGRAM = """
import sys
from core.tests.attach.producers import main
main(*sys.argv[1:])
"""


@contextmanager
def a_producer(path: Path, name: str, seed: int, timeout_ms: int = 60_000) -> Iterator[Process]:
    with a_program(PROGRAM, path, name, seed, timeout_ms) as producer:
        yield producer


def await_all(producers: list[Process]) -> None:
    for producer in producers:
        assert producer.line() == "begun\n"


def in_the_log(path: Path) -> dict[str, dict[int, list[int]]]:
    """Of each topic: where each number stands; in the log's order."""
    found: dict[str, dict[int, list[int]]] = {}
    with open_alone(path) as store:
        for each in store.scan():
            number = int(bytes(each.body).split(b" ", 1)[0])
            found.setdefault(each.topic, {}).setdefault(number, []).append(each.physical_offset)
    return found


def check(logged: dict[int, list[int]], told: dict[str, Any]) -> None:
    """What a producer was told against what is in the log."""
    assert not [number for number, places in logged.items() if len(places) > 1], "doubled"
    assert list(logged) == sorted(logged), "out of order"
    for number, what in told.items():
        places = logged.get(int(number), [])
        if isinstance(what, int):
            assert places == [what], f"{number} was acknowledged"
        elif what.startswith("refused"):
            assert not places, what
    assert {str(number) for number in logged} <= told.keys()


def await_more(path: Path) -> None:
    """Until the owner that there is now has taken some hundred messages."""
    before = confirmed(path)
    until(lambda: confirmed(path) > before + MORE_BYTES, 60)


def confirmed(path: Path) -> int:
    page = PageView.open(RealFileSystem(), path)
    assert page is not None
    return page.counts()["confirmed"]


def kill_owners(path: Path, rounds: int, seed: int, flush: str) -> None:
    random = Random(seed)
    with ExitStack() as stack:
        owner = stack.enter_context(an_owner(path, flush))
        names = [f"p{number}" for number in range(4)]
        producers = [stack.enter_context(a_producer(path, name, seed)) for name in names]
        await_all(producers)
        for _ in range(rounds):
            time.sleep(random.uniform(0.05, 0.25))
            owner.kill()
            owner = stack.enter_context(an_owner(path, flush))
        told = [json.loads(producer.end()) for producer in producers]
        owner.kill()
    logged = in_the_log(path)
    for name, each in zip(names, told, strict=True):
        assert each
        assert not {what for what in each.values() if isinstance(what, str)}
        check(logged[name], each)


@pytest.mark.parametrize("flush", ["none", "inline"])
def test_owners_are_killed_and_others_come(tmp_path: Path, flush: str) -> None:
    kill_owners(tmp_path, 2, 7, flush)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_many_owners_are_killed(tmp_path: Path, seed: int) -> None:
    kill_owners(tmp_path, 8, seed, "none" if seed % 2 else "inline")


def kill_producers(path: Path, rounds: int, seed: int) -> None:
    """All but one are killed, again and again; that one hears nothing of it."""
    random = Random(seed)
    with an_owned_hub(path) as (_, hub), ExitStack() as stack:
        steady = stack.enter_context(a_producer(path, "steady", seed))
        await_all([steady])
        for number in range(rounds):
            with ExitStack() as those:
                dying = [
                    those.enter_context(a_producer(path, f"p{number}-{at}", seed + at))
                    for at in range(2)
                ]
                await_all(dying)
                time.sleep(random.uniform(0, 0.1))
                for each in dying:
                    each.kill()
        until(lambda: len(hub.clients()) == 1)
        told = json.loads(steady.end())
        until(lambda: not hub.clients())
    logged = in_the_log(path)
    check(logged.pop("steady"), told)
    for name, numbers in logged.items():
        assert all(len(places) == 1 for places in numbers.values())
        assert list(numbers) == [*range(len(numbers))], f"{name} left a gap"


def test_producers_are_killed(tmp_path: Path) -> None:
    kill_producers(tmp_path, 2, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_many_producers_are_killed(tmp_path: Path, seed: int) -> None:
    kill_producers(tmp_path, 10, seed)


# --- nobody comes ---


def intend(producer: Producer, position: int) -> None:
    """Note in the one open entry what an owner notes before it writes."""
    (ticket,) = producer._line.link.writer._tickets
    words = producer._line.link.writer._words
    words[(ticket.at >> 3) + AT_POSITION], words[(ticket.at >> 3) + AT_STAMP] = position, 1


def test_without_a_successor_each_put_is_told_what_is_known(tmp_path: Path) -> None:
    with an_owner(tmp_path) as owner:
        producer = connect(tmp_path, timeout_ms=100)
        assert producer.put(Message("t", b"x")).size > 0
        owner.kill()
    with pytest.raises(PutRefused, match="no other one came in 100 ms"):
        producer.put(Message("t", b"x"))
    future = producer.put_async(Message("t", b"x"))
    with pytest.raises(PutRefused, match="no other one came in 100 ms"):
        future.result(10)
    with pytest.raises(PutRefused, match="no other one came in 100 ms"):
        producer.flush()
    with an_owned_hub(tmp_path):
        assert producer.put(Message("t", b"y")).physical_offset > 0
        assert producer.flush() > 0
        producer.close()


def test_what_was_about_to_be_written_is_unknown(tmp_path: Path) -> None:
    with an_owner(tmp_path) as owner:
        producer = connect(tmp_path, timeout_ms=100)
        assert producer.put(Message("t", b"x")).size > 0
        hold(owner.process.pid)  # it takes nothing
        future = producer.put_batch_async([Message("t", b"y")] * 3)
        until(lambda: bool(producer._line._open))
        assert producer._line._open[0].sequence == 2
        intend(producer, 98)
        owner.kill()
    with pytest.raises(OutcomeUnknown, match="only the log can say"):
        future.result(10)
    producer.close()


def test_an_owner_that_closes_hands_over_what_it_did_not_take(tmp_path: Path) -> None:
    with an_owned_hub(tmp_path):
        producer = connect(tmp_path, timeout_ms=20_000)
        offsets = [
            producer.put(Message("t", b"%d" % at, queue_id=0)).queue_offset for at in range(5)
        ]
    futures = [producer.put_async(Message("t", b"%d" % at, queue_id=0)) for at in range(5, 200)]
    with an_owned_hub(tmp_path):
        offsets += [each.result(10).queue_offset for each in futures]
        producer.close()
    assert offsets == [*range(200)]


def test_a_record_that_was_deleted_since_is_not_put_again(tmp_path: Path) -> None:
    """Nobody can know any more whether it was there."""
    with an_owned_hub(tmp_path, segment_size_bytes=SMALL) as (store, _):
        for _ in range(100):
            store.put(Message("t", bytes(1000)))
    heirs = list[AnHeir]()
    with an_owner(tmp_path / "other") as owner:
        producer = connect(tmp_path / "other", on_lost=lambda: heirs.pop() if heirs else None)
        hold(owner.process.pid)
        future = producer.put_batch_async([Message("t", b"y")] * 3)
        until(lambda: bool(producer._line._open))
        intend(producer, 0)
        owner.kill()
    with an_owned_hub(tmp_path, segment_size_bytes=SMALL) as (store, hub):
        owned = store._owned
        assert owned is not None
        owned.segments.retreat()
        end = store.max_offset
        link = hub.in_process()
        heirs.append(AnHeir(link, owned.appender, offsets_of(store), lambda: None))
        with pytest.raises(StoreFailed, match="offset 0"):
            future.result(10)
        assert producer.put(Message("t", b"z")).physical_offset == end
        producer.close()


def test_an_owner_dies_while_a_callback_waits_for_its_turn(tmp_path: Path) -> None:
    """The callback's thread is the one that looks whether the owner still lives."""
    with an_owner(tmp_path) as owner:
        producer = connect(tmp_path)
        full, behind = Event(), Queue[int]()
        two = [Message("t", bytes(4000), queue_id=0)] * 2

        def again(_: object) -> None:
            full.wait(60)
            behind.put(producer.put(two[0]).queue_offset)

        producer.put_batch_async(two).add_done_callback(again)
        until(lambda: not producer._line._open)
        hold(owner.process.pid)
        filling = Thread(target=lambda: [producer.put_batch_async(two) for _ in range(4000)])
        filling.daemon = True  # a failure ends
        filling.start()
        until(lambda: getattr(producer._line._entrance._room, "sleeper", None) is not None)
        full.set()
        time.sleep(0.1)  # for the callback to wait for its turn
        owner.kill()
    with an_owner(tmp_path):
        assert behind.get(timeout=60) > 2
        filling.join(60)
        producer.close()
