"""The messages that a consumer reads, their order, and its committed offsets."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

import lakelog
from core.tests.store.support import SEGMENT, open_small
from lakelog import Consumer, GetResult, GetStatus, Message, Store, StoredMessage
from lakelog.errors import SettingsError, StoreClosed, StoreReadOnly
from lakelog_queues.consumers.consumer import Fetching
from plugins.queues.tests.groups.support import fill, put
from tests.support.waiting import until


def consumer_of(store: Store, queue_ids: list[int] | None = None, **more: Any) -> Consumer:
    return store.consumer("g", "t", queue_ids, **{"start": "earliest", **more})


def places(messages: list[StoredMessage]) -> list[str]:
    return [f"{each.queue_id}/{each.queue_offset}" for each in messages]


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Store]:
    """A store whose queue has the messages 2 to 8: the others were removed with their segments."""
    with open_small(tmp_path / "old") as store:
        for _ in range(9):
            store.put(Message("t", bytes(SEGMENT // 2), queue_id=0))
    for segment in (0, 1):
        (tmp_path / "old" / "commitlog" / f"{segment * SEGMENT:020d}").unlink()
    with open_small(tmp_path / "old") as store:
        assert store.queue_bounds("t", 0) == (2, 9)
        yield store


def test_every_message_once_in_the_order_of_the_log(store: Store) -> None:
    draw = random.Random(7)
    queues = [draw.choice((0, 0, 0, 0, 1, 3)) for _ in range(300)]
    for start in range(0, 300, 7):
        store.put_batch([Message("t", b"x", queue_id=each) for each in queues[start : start + 7]])
    consumer, found = consumer_of(store), list[StoredMessage]()
    for most in (1, 1, 9, 1, 100, 2, 32, 32):
        found += (polled := consumer.poll(most))
        assert len(polled) == most
    found += list(consumer.messages(follow=False))
    assert [each.queue_id for each in found] == queues
    assert places(found) == places(list(store.scan()))
    assert consumer.poll() == []


@pytest.mark.parametrize("mode", ["write", "read"])
def test_two_producers_and_a_consumer_at_once(store: Store, mode: Any) -> None:
    """A queue that was at its end when it was read may get messages before others are read."""
    ended = threading.Event()

    def produce(first: int) -> None:
        number = first
        while not ended.is_set():
            store.put(Message("t", b"%d" % number, queue_id=number % 5))
            number += 2

    with ExitStack() as opened:
        reader = store
        if mode == "read":
            reader = opened.enter_context(lakelog.open(store.path, mode=mode))
        threads = [threading.Thread(target=produce, args=(first,)) for first in (0, 1)]
        for each in threads:
            each.start()
            opened.callback(each.join)
        opened.callback(ended.set)
        consumer, found = consumer_of(reader), list[StoredMessage]()
        while len(found) < 2000:
            found += consumer.poll(3, wait_ms=1000)
        offsets = [each.physical_offset for each in found]
        assert offsets == sorted(offsets)
        assert offsets == [each.physical_offset for each in islice(reader.scan(), len(offsets))]


def test_messages_of_new_queues_are_in_the_order_of_the_log(store: Store) -> None:
    consumer = consumer_of(store)
    assert consumer.poll() == []
    for number in range(5):
        put(store, number, queue_id=number)
    put(store, 5, queue_id=0)
    assert places(consumer.poll()) == ["0/0", "1/0", "2/0", "3/0", "4/0", "0/1"]


class Place(NamedTuple):
    """A message, as far as its place goes."""

    queue_offset: int
    physical_offset: int
    topic: str = "t"
    size: int = 100


def fetching_of(queues: dict[int, list[Place]], on_get: Any = lambda _queue: None) -> Fetching:
    def get(topic: str, queue: int, offset: int, count: int, *, tags: None) -> GetResult:
        on_get(queue)
        some: Any = queues[queue][offset : offset + count]
        status = GetStatus.FOUND if some else GetStatus.OFFSET_OVERFLOW_ONE
        return GetResult(status, some, offset + len(some), 0, len(queues[queue]))

    access: Any = SimpleNamespace(get=get)
    fetching = Fetching(access, "t", None)
    for queue in queues:
        fetching.seek(queue, 0)
    return fetching


def merged(fetching: Fetching, limit: int) -> list[int]:
    fetching.extend(limit)
    return [message.physical_offset for _, _, _, message in fetching.merged(100)]


def test_what_comes_while_queues_are_read_waits_for_the_next_turn() -> None:
    queues = {0: [Place(0, 10)], 1: [Place(0, 20)]}

    def arrive(queue: int) -> None:
        if queue == 1 and len(queues[0]) == 1:  # queue 0 was read before
            queues[0].append(Place(1, 100))
            queues[1].append(Place(1, 200))

    fetching = fetching_of(queues, arrive)
    assert merged(fetching, 50) == [10, 20]
    assert merged(fetching, 300) == [100, 200]


def test_a_moved_record_keeps_the_order_of_its_queue() -> None:
    """After a repair, the record of an earlier message may be at the end of the log."""
    moved = [Place(0, 9000), Place(1, 200), Place(2, 400)]
    fetching = fetching_of({0: moved, 1: [Place(0, 100), Place(1, 300), Place(2, 9500)]})
    assert merged(fetching, 10_000) == [100, 300, 9000, 200, 400, 9500]


def test_a_poll_that_an_exception_ended_is_repeated(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 20)
    consumer = consumer_of(store)
    first = consumer.poll(3)
    settle = consumer._settle

    def interrupted() -> None:
        settle()
        raise KeyboardInterrupt

    monkeypatch.setattr(consumer, "_settle", interrupted)
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(5)
    monkeypatch.undo()
    consumer.commit()
    assert sum(consumer.committed().values()) == len(first) == 3
    rest = consumer.poll(100)
    assert places(first + rest) == places(list(store.scan()))


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("latest", 9),
        ("earliest", 2),
        (datetime.fromtimestamp(0, UTC), 2),
        (datetime(2100, 1, 1, tzinfo=UTC), 9),
    ],
)
def test_where_a_new_group_starts(old: Store, start: Any, first: int) -> None:
    consumer = consumer_of(old, start=start)
    assert places(consumer.poll()) == [f"0/{at}" for at in range(first, 9)]
    put(old, 9)
    assert places(consumer.poll()) == ["0/9"]


def test_without_a_start_a_new_group_begins_at_the_earliest(old: Store) -> None:
    assert places(old.consumer("g", "t").poll()) == [f"0/{at}" for at in range(2, 9)]
    assert places(old.consumer("g", "t", [0]).poll(1)) == ["0/2"]


def test_a_group_goes_on_where_it_committed(store: Store) -> None:
    fill(store, 10, queues=1)
    with consumer_of(store) as consumer:
        consumer.poll(4)
        consumer.commit()
        consumer.poll(3)
    with consumer_of(store) as again:
        assert places(again.poll(2)) == ["0/4", "0/5"]
        assert again.committed() == {0: 4}


def test_latest_holds_from_the_first_commit_on(store: Store) -> None:
    """A queue that is made later is read from its first message."""
    fill(store, 10, queues=2)
    consumer = consumer_of(store, start="latest")
    consumer.commit()
    put(store, 10, queue_id=1)
    assert places(consumer_of(store, start="latest").poll()) == ["1/5"]
    put(store, 11, queue_id=2)
    until(lambda: "2/0" in places(consumer.poll(wait_ms=100)))
    consumer.commit()
    put(store, 12, queue_id=3)
    until(lambda: places(consumer_of(store, start="latest").poll()) == ["3/0"])


def test_commits_by_batch(store: Store) -> None:
    fill(store, 10, queues=1)
    consumer = consumer_of(store, commit="batch")
    consumer.poll(3)
    assert consumer.committed().get(0, 0) == 0
    consumer.poll(3)
    assert consumer.committed() == {0: 3}
    consumer.close()
    assert store.groups() == {"g": {"t": {0: 6}}}


def test_after_an_error_the_batch_comes_again(store: Store) -> None:
    fill(store, 10, queues=1)

    def handle() -> None:
        with consumer_of(store, commit="batch") as consumer:
            consumer.poll(3)
            consumer.poll(3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        handle()
    assert places(consumer_of(store).poll(1)) == ["0/3"]


def test_a_commit_amid_an_iteration_covers_what_was_yielded(store: Store) -> None:
    fill(store, 20, queues=2)
    consumer = consumer_of(store)
    messages = consumer.messages(follow=False)
    seen = Counter(next(messages).queue_id for _ in range(7))
    consumer.commit()
    assert consumer.committed() == {0: seen[0], 1: seen[1]}
    assert len(consumer.poll(100)) == 13, "what was fetched and not yielded is not lost"


@pytest.mark.parametrize("closed", ["consumer", "store"])
def test_iterating_ends_when_it_is_closed(store: Store, closed: str) -> None:
    fill(store, 2, queues=1)
    consumer = consumer_of(store)
    seen: list[StoredMessage] = []

    def read() -> None:
        with suppress(StoreClosed):
            for each in consumer:
                seen.append(each)  # noqa: PERF402  # those that came before it was closed

    thread = threading.Thread(target=read)
    thread.start()
    put(store, 2)
    until(lambda: consumer.position(0) == 3)
    (consumer if closed == "consumer" else store).close()
    thread.join(60)
    assert not thread.is_alive()
    assert places(seen) == ["0/0", "0/1", "0/2"]
    with pytest.raises(StoreClosed):
        consumer.poll()


def test_a_poll_waits_for_a_message(store: Store) -> None:
    fill(store, 2, queues=2)
    consumer = consumer_of(store, start="latest")
    assert consumer.poll(wait_ms=60) == []
    threading.Timer(0.05, put, [store, 9]).start()
    assert places(consumer.poll(wait_ms=60_000)) == ["0/1"]


def test_messages_of_other_tags_are_passed_over_and_committed(store: Store) -> None:
    fill(store, 200, queues=1, tags="A")
    put(store, 200, tags="B")
    consumer = consumer_of(store, tags="B")
    assert places(consumer.poll(10)) == ["0/200"]
    consumer.commit()
    assert consumer.committed() == {0: 201}


@pytest.mark.parametrize(("at", "first"), [(0, 2), (4, 4), (99, 9)])
def test_places_beyond_the_ends_are_corrected(
    old: Store, at: int, first: int, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = consumer_of(old)
    consumer.seek(0, at)
    found = consumer.poll()
    put(old, 9)
    assert places(found + consumer.poll())[0] == f"0/{first}"
    assert ("reading continues at" in caplog.text) == (at != 4)


@pytest.mark.parametrize(
    ("to", "position"),
    [
        *(("earliest", 2), ("latest", 9), (5, 5), (0, 2), (70, 9)),
        (datetime(2100, 1, 1, tzinfo=UTC), 9),
    ],
)
def test_reset(old: Store, to: Any, position: int) -> None:
    consumer = consumer_of(old)
    consumer.poll(1)
    consumer.reset(to)
    assert consumer.position(0) == position
    assert consumer.committed() == {0: position}
    assert len(consumer.poll()) == 9 - position


def test_seek_drops_what_was_fetched(store: Store) -> None:
    fill(store, 9, queues=1)
    consumer = consumer_of(store)
    next(consumer.messages())
    consumer.seek(0, 7)
    assert places(consumer.poll()) == ["0/7", "0/8"]


def test_lag(old: Store) -> None:
    for number in range(4):
        put(old, number, queue_id=1)
    consumer = consumer_of(old, [0, 1, 5])
    assert consumer.lag() == {0: 7, 1: 4, 5: 0}
    consumer.seek(0, 0)
    assert consumer.lag()[0] == 7, "what was deleted is no lag"
    while consumer.poll():
        pass
    assert sum(consumer.lag().values()) == 0


def test_a_light_queue_holds_messages_of_other_topics(tmp_path: Path) -> None:
    with open_small(tmp_path / "light", light_queues=True) as store:
        fill(store, 3, queues=1)
        for number in range(5):
            put(store, number, properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
        consumer = store.consumer("g", "%LMQ%a", start="earliest")
        messages = consumer.messages(follow=False)
        assert [next(messages).queue_offset, next(messages).queue_offset] == [3, 4]
        consumer.commit()
        assert consumer.committed() == {0: 0}, "the place behind the second is not known"
        assert len(consumer.poll()) == 3
        consumer.commit()
        assert consumer.committed() == {0: 5}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"start": "first"}, "not a place in a queue"),
        ({"start": datetime(2020, 1, 1)}, "no time zone"),  # noqa: DTZ001  # refused for just that
        ({"commit": "auto"}, "'explicit' or 'batch'"),
        ({"queue_ids": []}, "are not valid"),
        ({"queue_ids": [-1]}, "are not valid"),
    ],
)
def test_bad_arguments(change: dict[str, Any], match: str, store: Store) -> None:
    with pytest.raises(SettingsError, match=match):
        consumer_of(store, **change)


def test_bad_calls(store: Store) -> None:
    assert consumer_of(store).poll() == [], "an unknown topic has nothing"
    fill(store, 1)
    consumer = consumer_of(store)
    with pytest.raises(ValueError, match="max_messages is 0"):
        consumer.poll(0)
    with pytest.raises(ValueError, match="queue_id is 4; this consumer reads the queues 0"):
        consumer.seek(4, 0)
    with pytest.raises(ValueError, match="offset is -1"):
        consumer.seek(0, -1)


def test_a_reader_reads_and_does_not_commit(store: Store) -> None:
    fill(store, 5, queues=1)
    owner = consumer_of(store)
    owner.poll(2)
    owner.commit()
    with lakelog.open(store.path, mode="read") as reading:
        reader = consumer_of(reading)
        assert places(reader.poll(1)) == ["0/2"]
        with pytest.raises(StoreReadOnly, match="mode='write'"):
            reader.commit()
        owner.poll(1)
        owner.commit()
        assert reader.committed() == {0: 3}
        with pytest.raises(StoreReadOnly):
            consumer_of(reading, commit="batch")
