"""The real store opens stores of lakelog with queues and index, and rebuilds nothing.

Both directories are compared byte by byte before and after, and both dumps line by line.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import lakelog
from lakelog import Message
from lakelog.format.layout import COMMIT, PREPARED, ROLLBACK
from lakelog.format.properties import INNER_MULTI_DISPATCH, KEYS
from tests.support.rows import by_kind, difference
from tests.support.twostores import alike, derived, ours

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.java import Oracle

SEGMENT: Final = 256 << 10
JAVA, SETTINGS = alike(SEGMENT)
SETTINGS["flush"] = "none"
TOPICS: Final = ("orders", "Größe", "t" * 127, "u" * 128, "%RETRY%group")
TAGS: Final = (None, "TagA", "TagB", "标签", "polygenelubricants")
"""The hash of the last one is negative."""
DELAYS: Final = range(1, 21)


def a_message(chance: random.Random, number: int) -> Message:
    """Return a message of any kind that a store may hold."""
    properties = {"UNIQ_KEY": f"{number:032X}"} if chance.random() < 0.5 else {}
    if chance.random() < 0.1:
        lights = chance.sample(["%LMQ%a", "%LMQ%b", "%LMQ%c"], chance.randint(1, 3))
        properties[INNER_MULTI_DISPATCH] = ",".join(lights)
    keys = chance.choice((None, "one", f"k{number}", "two  three", "ключ 鍵"))
    if keys is not None:
        properties[KEYS] = keys
    return Message(
        chance.choice(TOPICS),
        chance.randbytes(chance.choice((0, 1, 100, 100, 100, 5000))),
        tags=chance.choice(TAGS),
        properties=properties,
        queue_id=chance.randrange(3),
        sys_flag=chance.choice((0,) * 7 + (PREPARED, COMMIT, ROLLBACK)),
        born_timestamp_ms=1_700_000_000_000 + number,
    )


def a_delayed_message(level: int) -> Message:
    """Return the message that a broker writes for a delayed message."""
    return Message(
        "SCHEDULE_TOPIC_XXXX",
        b"later",
        tags="T",
        properties={"DELAY": str(level), "REAL_TOPIC": "orders", "REAL_QID": "0"},
        queue_id=min(level, 18) - 1,
    )


def fill(path: Path, seed: int, *, reopenings: int) -> None:
    chance = random.Random(seed)
    number = 0
    for _ in range(reopenings + 1):
        with lakelog.open(path, **SETTINGS) as store:
            for _ in range(60):
                count = chance.choice((1, 1, 1, 60))
                batch = [a_message(chance, number + at) for at in range(count)]
                number += count
                store.put(batch[0]) if count == 1 else store.put_batch(batch)
            store.put_batch([a_delayed_message(level) for level in DELAYS])


def test_the_real_store_takes_it_as_it_is(oracle: Oracle, tmp_path: Path) -> None:
    path = tmp_path / "store"
    fill(path, 2, reopenings=2)
    dumped = ours(path, JAVA)
    before = derived(path)
    assert sum(name.startswith("index") for name in before) > 1
    theirs = oracle.dump(path, JAVA, in_place=True)
    assert not difference(dumped, theirs)
    assert derived(path) == before
    rows = by_kind(theirs)
    assert rows["store"][0]["loaded"] is True
    assert {row["topic"] for row in rows["queue"]} >= {*TOPICS, "%LMQ%a", "SCHEDULE_TOPIC_XXXX"}
    assert len(rows["query"]) > 500


def test_both_stores_take_turns(oracle: Oracle, tmp_path: Path) -> None:
    path = tmp_path / "store"
    for turn in range(2):
        fill(path, turn, reopenings=0)
        oracle.fill(path, JAVA, count=300, seed=turn)
    dumped = ours(path, JAVA)
    before = derived(path)
    assert not difference(dumped, oracle.dump(path, JAVA, in_place=True))
    assert derived(path) == before
