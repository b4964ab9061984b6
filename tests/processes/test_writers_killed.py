"""Writers and readers that are killed, round after round, with small segments.

Any writer has the services at some time, and half of the rounds kill who has them. The store stays
open all the while: no recovery comes in between. At the end every acknowledged message is there
once, at its place, in the order of its writer; the queue and each reader have them all; ``verify``
finds nothing, and the real store reads the same.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import lakelog
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.shared.ownership import is_owned
from tests.processes.crowd import (
    ACKED,
    ERRORS,
    LONGEST_PAUSE_SECONDS,
    QUEUE,
    READER,
    SAW,
    TOPIC,
    WRITER,
    Crowd,
    One,
)
from tests.processes.member import owner_of
from tests.processes.test_killed import rounds_of, verified
from tests.processes.words import JOURNALS, STORE, lines_of
from tests.support.rows import by_kind, difference
from tests.support.twostores import SEGMENT, derived, ours
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.oracle.java import Oracle

WRITERS: Final = 8
READERS: Final = 2
BUSY_MS: Final = 20_000
"""A put that waits for longer is refused, and its writer ends by itself."""
FLUSHES: Final = ("none", "timed", "inline", "group-commit")
SIZES: Final = {
    "consume-queue": {"file_entries": 1000},
    "hash-index": {"slots": 1000, "entries": 4000},
}
JAVA: Final = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}


def play(folder: Path, flush: str, rounds: int, seed: int) -> Counter[str]:
    """Kill one or more in each round; what was counted."""
    for name in (JOURNALS, ERRORS):
        (folder / name).mkdir(parents=True)
    choose, counts = random.Random(seed), Counter[str]()
    how: dict[str, Any] = {
        "flush": flush,
        "segment_size_bytes": SEGMENT,
        "os_page_cache_busy_timeout_ms": BUSY_MS,
        "settings": SIZES,
    }
    crowd = Crowd(folder, how)
    try:
        crowd.begin(WRITERS, readers=0)
        crowd.begin(WRITERS, READERS)
        for _ in range(rounds):
            _round(crowd, choose, counts)
        with lakelog.open(folder / STORE, **how) as last:
            crowd.kill(list(crowd.writers))
            last.flush()  # what the dead had appended, and nobody has synced, is seen then
            counts += judged(last, crowd)
            crowd.kill(list(crowd.readers))
    finally:
        crowd.end()
    return counts


def _round(crowd: Crowd, choose: random.Random, counts: Counter[str]) -> None:
    """At any instant; then all get on, and those who replace the dead too."""
    wait = choose.uniform(0, LONGEST_PAUSE_SECONDS)
    crowd.readers[0].process.join(wait)
    victims = choose.sample(crowd.writers, choose.choice([1, 1, 1, 2, 4]))
    if choose.random() < 0.5:
        served = owner_of(crowd.folder)
        victims += [each for each in crowd.writers if each.process.pid == served]
    if choose.random() < 0.3:
        victims.append(choose.choice(crowd.readers))
    some = list({each.name: each for each in victims}.values())
    counts.update(_kinds(crowd, some))
    crowd.kill(some)
    crowd.begin(WRITERS, READERS)
    counts["rounds"] += 1


def _kinds(crowd: Crowd, some: list[One]) -> list[str]:
    served = owner_of(crowd.folder)
    holders = ["holder of services" for each in some if each.process.pid == served]
    return [*holders, *(each.name.rstrip("0123456789") for each in some), *["kill"] * len(some)]


def judged(store: lakelog.Store, crowd: Crowd) -> Counter[str]:
    """Each acknowledged message is there once, where it was said; those of a writer in order."""
    assert store.wait_dispatched(timeout_ms=60_000)
    damage = list[Any]()
    places, last = dict[str, int](), dict[str, int]()
    for message in store.scan(on_damage=damage.append):
        name, text, _ = bytes(message.body).decode().split(":", 2)
        assert last.get(name, -1) == int(text) - 1, f"{name}: {text} behind {last.get(name)}"
        last[name] = int(text)
        places[f"{name}:{text}"] = message.physical_offset
    assert damage == []
    counts = Counter({"found": len(places)})
    longest = 0
    for journal in (crowd.folder / JOURNALS).glob(f"{WRITER}*"):
        for word, *rest in lines_of(journal):
            assert word == ACKED, f"{journal.name}: {word} {rest}"
            number, place, waited_us = map(int, rest)
            assert places.get(f"{journal.name}:{number}") == place
            counts["acknowledged"] += 1
            longest = max(longest, waited_us)
    assert store.queue_bounds(TOPIC, QUEUE) == (0, len(places))
    queue = sorted(places.values())
    assert [each.physical_offset for each in store.read(TOPIC, QUEUE)] == queue
    for each in crowd.readers:
        _saw_all(crowd, each, queue)
    counts["longest wait of a put, us"] = longest
    return counts


def _saw_all(crowd: Crowd, reader: One, queue: list[int]) -> None:
    def seen() -> list[tuple[int, ...]]:
        crowd.check_alive()
        return [tuple(map(int, rest)) for word, *rest in lines_of(reader.journal) if word == SAW]

    until(lambda: len(seen()) >= len(queue), f"{reader.name} has not seen all")
    assert seen() == list(enumerate(queue))


def check(folder: Path, flush: str, rounds: int, seed: int) -> Counter[str]:
    counts = play(folder, flush, rounds, seed)
    print(flush, dict(counts))  # noqa: T201  # what the test was worth
    assert counts["acknowledged"] > rounds
    assert not is_owned(RealFileSystem(), folder / STORE)
    assert not (folder / STORE / "abort").exists(), "the last one closes the store"
    verified(folder / STORE)
    return counts


@pytest.mark.parametrize("flush", ["none", "group-commit"])
def test_writers_are_killed(tmp_path: Path, flush: str) -> None:
    check(tmp_path, flush, 2, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("flush", FLUSHES)
def test_writers_are_killed_often(oracle: Oracle, tmp_path: Path, flush: str) -> None:
    counts = check(tmp_path, flush, rounds_of(75), seed=2)
    assert counts["holder of services"] > 0
    assert counts[READER] > 0
    path = tmp_path / STORE
    before, found = derived(path), ours(path, JAVA)
    assert len(by_kind(found)["rec"]) == counts["found"]
    assert difference(found, oracle.dump(path, JAVA, in_place=True)) == ""
    assert derived(path) == before
