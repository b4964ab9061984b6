"""An entry is offered again to the successor of an owner that died at any point of its append."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.tests.ring.support import STORED_MS, Log, Rig, a_log, a_rig, an_encoder
from core.tests.ring.test_through_the_ring import LIGHT, PUTS, columns, message
from lakelog import Message
from lakelog.errors import OffsetOutOfRange, PutRefused
from lakelog.results import BatchResult
from lakelog.ring.joined import JoinedBatch
from lakelog.ring.retry import settle_retry
from lakelog.status import PutStatus


def settled(rig: Rig, log: Log) -> int:
    """What a successor does with the one entry in its ring; how many it found."""
    rig.arena.reset()
    (taken,) = rig.reader.take(1)
    found = settle_retry(taken, log.read)
    if taken.batch is None:
        taken.answer(PutStatus.PUT_OK)
    else:
        joined = JoinedBatch([taken], rig.arena)
        log.log.append(joined, [])
        joined.answer(PutStatus.PUT_OK)
    return found


def cut(log: Log, end: int) -> None:
    """What a recovery does: the log ends here."""
    log.log.positions.appended = end


@pytest.mark.parametrize("record_crc", [False, True], ids=["", "sealed"])
@pytest.mark.parametrize("name", [name for name in PUTS if "no queue" not in name])
def test_all_some_or_nothing_of_it_is_there(name: str, record_crc: bool, tmp_path: Path) -> None:
    messages = PUTS[name]
    encoder = an_encoder(record_crc=record_crc, lights=100)
    with a_log(tmp_path, encoder) as log:
        log.put(encoder, [message()])
        start = log.log.positions.appended
        places = [each.physical_offset for each in log.put(encoder, messages)]
        whole = log.content
        for there in sorted({0, 1, len(places) // 2, len(places)}, reverse=True):
            end = [*places, len(whole)][there]
            cut(log, end)
            before = log.queue_offsets.snapshot()
            rig = a_rig(record_crc=record_crc, lights=100)
            rig.offer(messages, [(start, STORED_MS)])
            assert settled(rig, log) == there
            (answer,) = rig.answers()
            results = list(answer.results())
            assert [each.topic for each in results] == [each.topic for each in messages]
            assert [each.physical_offset for each in results[:there]] == places[:there]
            assert log.content[:end] == whole[:end]
            if there == len(places):
                assert log.content == whole
                assert log.queue_offsets.snapshot() == before


def test_a_torn_record_does_not_count(tmp_path: Path) -> None:
    rig = a_rig()
    with a_log(tmp_path, rig.encoder) as log:
        log.put(rig.encoder, PUTS["few"])
        cut(log, len(log.content) - 1)
        rig.offer(PUTS["few"], [(0, STORED_MS)])
        assert settled(rig, log) == 6


@pytest.mark.parametrize(
    ("logged", "position", "stamp_ms"),
    [
        (PUTS["few"], 0, STORED_MS + 1),
        (PUTS["few"], 1, STORED_MS),
        (PUTS["few"], 1 << 40, STORED_MS),
        (PUTS["few"], -1, STORED_MS),
        ([message(9)], 0, STORED_MS),
        ([message(0, keys="other")], 0, STORED_MS),
        ([message(0, queue_id=7)], 0, STORED_MS),
        ([message(0, flag=1)], 0, STORED_MS),
        ([message(0, reconsume_times=1)], 0, STORED_MS),
        ([message(0, properties={"more": "x"})], 0, STORED_MS),
    ],
)
def test_what_is_not_it(
    logged: list[Message], position: int, stamp_ms: int, tmp_path: Path
) -> None:
    rig = a_rig(lights=9)
    with a_log(tmp_path, rig.encoder) as log:
        log.put(rig.encoder, logged)
        rig.offer([message(0)], [(position, stamp_ms)])
        assert settled(rig, log) == 0


def test_owners_died_twice(tmp_path: Path) -> None:
    """The first had written two records of five, the second two more."""
    rig, few = a_rig(), PUTS["few"][:5]
    with a_log(tmp_path, rig.encoder) as log:
        first = log.put(rig.encoder, few[:2])
        log.put(rig.encoder, [message(77)])
        second = log.put(rig.encoder, few[2:4])
        intents = [(first[0].physical_offset, STORED_MS), (second[0].physical_offset, STORED_MS)]
        rig.offer(few, intents)
        assert settled(rig, log) == 4
        (answer,) = rig.answers()
        assert [*answer.results()][:4] == [*first, *second]
        assert len(answer.results()) == 5


def test_parts_of_different_times_come_one_by_one(tmp_path: Path) -> None:
    rig = a_rig()
    with a_log(tmp_path, rig.encoder) as log:
        log.put(rig.encoder, columns(64))
        cut(log, log.log.positions.appended // 2)
        log.log.last_timestamp_ms = STORED_MS + 7
        rig.offer(columns(64), [(0, STORED_MS)])
        assert settled(rig, log) == 32
        results = rig.answers()[0].results()
        assert not isinstance(results, BatchResult)
        assert {each.store_timestamp_ms for each in results} == {STORED_MS, STORED_MS + 7}


def test_the_rest_is_refused(tmp_path: Path) -> None:
    """What was found stays accepted."""
    rig = a_rig()
    with a_log(tmp_path, rig.encoder) as log:
        log.put(rig.encoder, PUTS["few"][:3])
        rig.offer(PUTS["few"], [(0, STORED_MS)])
        (taken,) = rig.take()
        settle_retry(taken, log.read)
        taken.refuse(PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "closing"))
    with pytest.raises(PutRefused) as caught:
        rig.answers()[0].results()
    assert len(caught.value.accepted) == 3


def test_a_log_that_was_deleted_meanwhile() -> None:
    def read(position: int, _length: int) -> bytes:
        raise OffsetOutOfRange("deleted", offset=position)

    rig = a_rig()
    rig.offer([message()], [(0, STORED_MS)])
    with pytest.raises(OffsetOutOfRange):
        settle_retry(rig.take()[0], read)


def test_light_queues_have_grown_the_record(tmp_path: Path) -> None:
    rig = a_rig(lights=9, record_crc=True)
    with a_log(tmp_path, rig.encoder) as log:
        result = log.put(rig.encoder, [message(properties=LIGHT)])
        rig.offer([message(properties=LIGHT)], [(0, STORED_MS)])
        assert settled(rig, log) == 1
        assert rig.answers()[0].results() == result
