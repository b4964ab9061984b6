"""The messages that a consumer reads, their order, and its committed offsets."""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakelog.errors import SettingsError, StoreClosed, StoreReadOnly
from lakelog_queues.finding.results import GetResult, GetStatus
from plugins.queues.tests.consumers.support import Queues, a_consumer, a_message, a_table, places


def test_every_message_once_and_each_queue_in_order(tmp_path: Path) -> None:
    queues = Queues(50, 3, 0, 17)
    consumer = a_consumer(queues, tmp_path)
    found = []
    while batch := consumer.poll(8):
        assert len(batch) <= 8
        found += batch
    assert len(found) == 70
    for queue_id, held in queues.held.items():
        assert [each for each in found if each.queue_id == queue_id] == held


def test_a_busy_queue_does_not_keep_the_others_waiting(tmp_path: Path) -> None:
    consumer = a_consumer(Queues(1000, 1000, 1000), tmp_path)
    first = Counter(each.queue_id for each in consumer.poll(9))
    assert first == {0: 3, 1: 3, 2: 3}
    singles = [consumer.poll(1)[0].queue_id for _ in range(6)]
    assert Counter(singles) == {0: 2, 1: 2, 2: 2}


def test_what_an_empty_queue_leaves_goes_to_the_others(tmp_path: Path) -> None:
    assert len(a_consumer(Queues(0, 0, 100), tmp_path).poll(30)) == 30


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("latest", []),
        ("earliest", ["0/2", "0/3", "0/4"]),
        (datetime.fromtimestamp(3, UTC), ["0/3", "0/4"]),
        (datetime.fromtimestamp(0, UTC), ["0/2", "0/3", "0/4"]),
        (datetime.fromtimestamp(99, UTC), []),
    ],
)
def test_where_a_new_group_starts(start: Any, first: list[str], tmp_path: Path) -> None:
    queues = Queues(5)
    queues.first[0] = 2
    consumer = a_consumer(queues, tmp_path, start=start)
    assert places(consumer.poll()) == first
    queues.put(0)
    assert places(consumer.poll()) == ["0/5"]


def test_a_group_goes_on_where_it_committed(tmp_path: Path) -> None:
    queues = Queues(10)
    with a_consumer(queues, tmp_path) as consumer:
        consumer.poll(4)
        consumer.commit()
        consumer.poll(3)
    with a_consumer(queues, tmp_path) as again:
        assert places(again.poll(2)) == ["0/4", "0/5"]
    assert again.committed() == {0: 4}


def test_latest_holds_from_the_first_commit_on(tmp_path: Path) -> None:
    queues = Queues(5, 5)
    a_consumer(queues, tmp_path, start="latest").commit()
    queues.put(1)
    assert places(a_consumer(queues, tmp_path, start="latest").poll()) == ["1/5"]


def test_a_queue_that_is_made_later_is_read_from_its_first_message(tmp_path: Path) -> None:
    queues = Queues(5)
    consumer = a_consumer(queues, tmp_path, start="latest")
    queues.put(1)
    assert places(consumer.poll(wait_ms=2000)) == ["1/0"]
    consumer.commit()
    queues.put(2)
    assert places(a_consumer(queues, tmp_path, start="latest").poll()) == ["2/0"]


def test_commits_by_batch(tmp_path: Path) -> None:
    queues, table = Queues(10), a_table(tmp_path)
    consumer = a_consumer(queues, tmp_path, commit="batch", offsets=table)
    consumer.poll(3)
    assert table.committed("g", "T").get(0, 0) == 0
    consumer.poll(3)
    assert table.committed("g", "T") == {0: 3}
    consumer.close()
    assert table.committed("g", "T") == {0: 6}


def test_after_an_error_the_batch_comes_again(tmp_path: Path) -> None:
    queues = Queues(10)

    def handle() -> None:
        with a_consumer(queues, tmp_path, commit="batch") as consumer:
            consumer.poll(3)
            consumer.poll(3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        handle()
    assert places(a_consumer(queues, tmp_path).poll(1)) == ["0/3"]


def test_a_commit_amid_an_iteration_covers_what_was_yielded(tmp_path: Path) -> None:
    queues = Queues(10, 10)
    consumer = a_consumer(queues, tmp_path)
    messages = consumer.messages(follow=False)
    seen = Counter(next(messages).queue_id for _ in range(7))
    consumer.commit()
    assert consumer.committed() == {0: seen[0], 1: seen[1]}
    assert len(consumer.poll(100)) == 13, "what was fetched and not yielded is not lost"


def test_iterating_ends_when_the_consumer_is_closed(tmp_path: Path) -> None:
    queues = Queues(2)
    consumer = a_consumer(queues, tmp_path)
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.extend(places(list(consumer))))
    thread.start()
    queues.put(0)
    time.sleep(0.05)
    consumer.close()
    queues.arrivals.notify()
    thread.join(5)
    assert not thread.is_alive()
    assert seen == ["0/0", "0/1", "0/2"]
    with pytest.raises(StoreClosed):
        consumer.poll()


def test_nobody_waits_for_a_store_that_is_closed(tmp_path: Path) -> None:
    queues = Queues(2)
    consumer = a_consumer(queues, tmp_path)
    queues.arrivals.close()
    assert places(list(consumer)) == ["0/0", "0/1"]
    begun = time.monotonic()
    assert consumer.poll(wait_ms=60_000) == []
    assert time.monotonic() - begun < 20


def test_a_poll_waits_for_a_message(tmp_path: Path) -> None:
    queues = Queues(0, 0)
    consumer = a_consumer(queues, tmp_path)
    begun = time.monotonic()
    assert consumer.poll(wait_ms=60) == []
    assert time.monotonic() - begun >= 0.06
    threading.Timer(0.05, queues.put, [1]).start()
    begun = time.monotonic()
    assert places(consumer.poll(wait_ms=60_000)) == ["1/0"]
    assert time.monotonic() - begun < 20


def test_messages_of_other_tags_are_passed_over_and_committed(tmp_path: Path) -> None:
    queues = Queues(200)
    queues.put(0, "B")
    consumer = a_consumer(queues, tmp_path, tags="B")
    assert places(consumer.poll(10)) == ["0/200"]
    consumer.commit()
    assert consumer.committed() == {0: 201}


@pytest.mark.parametrize(("at", "first"), [(0, "0/3"), (4, "0/4"), (99, "0/8")])
def test_places_beyond_the_ends_are_corrected(
    at: int, first: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queues = Queues(8)
    queues.first[0] = 3
    consumer = a_consumer(queues, tmp_path)
    consumer.seek(0, at)
    found = consumer.poll()
    queues.put(0)
    assert places(found + consumer.poll())[0] == first
    assert ("reading continues at" in caplog.text) == (at != 4)


@pytest.mark.parametrize(
    ("to", "position"),
    [("earliest", 2), ("latest", 9), (5, 5), (0, 2), (70, 9), (datetime.fromtimestamp(6, UTC), 6)],
)
def test_reset(to: Any, position: int, tmp_path: Path) -> None:
    queues = Queues(9)
    queues.first[0] = 2
    consumer = a_consumer(queues, tmp_path)
    consumer.poll(1)
    consumer.reset(to)
    assert consumer.position(0) == position
    assert consumer.committed() == {0: position}
    assert len(consumer.poll()) == 9 - position


def test_seek_drops_what_was_fetched(tmp_path: Path) -> None:
    consumer = a_consumer(Queues(9), tmp_path)
    next(consumer.messages())
    consumer.seek(0, 7)
    assert places(consumer.poll()) == ["0/7", "0/8"]


def test_lag(tmp_path: Path) -> None:
    queues = Queues(9, 4)
    queues.first[0] = 2
    consumer = a_consumer(queues, tmp_path, [0, 1, 5])
    assert consumer.lag() == {0: 7, 1: 4, 5: 0}
    consumer.seek(0, 0)
    assert consumer.lag()[0] == 7, "what was deleted is no lag"
    while consumer.poll():
        pass
    assert sum(consumer.lag().values()) == 0


def test_a_light_queue_holds_messages_of_other_topics(tmp_path: Path) -> None:
    class Light(Queues):
        def get(
            self, topic: str, queue_id: int, offset: int, *rest: Any, **named: Any
        ) -> GetResult:
            found = [a_message(3, 70 + n, topic="Other") for n in range(offset, 5)]
            status = GetStatus.FOUND if found else GetStatus.OFFSET_OVERFLOW_ONE
            return GetResult(status, found, 5, 0, 5)

    consumer = a_consumer(Light(5), tmp_path)
    assert len(consumer.poll(2)) == 2
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
def test_bad_arguments(change: dict[str, Any], match: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=match):
        a_consumer(Queues(1), tmp_path, **change)


def test_bad_calls(tmp_path: Path) -> None:
    consumer = a_consumer(Queues(1), tmp_path)
    with pytest.raises(ValueError, match="max_messages is 0"):
        consumer.poll(0)
    with pytest.raises(ValueError, match="does not read queue 4, but 0"):
        consumer.seek(4, 0)
    with pytest.raises(ValueError, match="offset is -1"):
        consumer.seek(0, -1)


def test_an_unknown_topic_has_nothing(tmp_path: Path) -> None:
    queues = Queues()
    assert a_consumer(queues, tmp_path).poll() == []


def test_a_reader_reads_and_does_not_commit(tmp_path: Path) -> None:
    queues = Queues(5)
    owner = a_consumer(queues, tmp_path)
    owner.poll(2)
    owner.commit()
    reader = a_consumer(queues, tmp_path, offsets=a_table(tmp_path, read_only=True))
    assert places(reader.poll(1)) == ["0/2"]
    with pytest.raises(StoreReadOnly, match="mode='write'"):
        reader.commit()
    owner.poll(1)
    owner.commit()
    assert reader.committed() == {0: 3}
    with pytest.raises(StoreReadOnly):
        a_consumer(queues, tmp_path, offsets=a_table(tmp_path, read_only=True), commit="batch")
