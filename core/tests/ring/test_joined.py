"""Entries of several producers in one append."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.tests.ring.support import SEGMENT_BYTES, STORED_MS, a_log, a_rig, an_encoder
from core.tests.ring.test_through_the_ring import LIGHT, PUTS, columns, message
from lakelog import Message
from lakelog.codec.run import decode_run
from lakelog.errors import PutRefused
from lakelog.queueoffsets import QueueOffsets
from lakelog.ring.arena import Arena
from lakelog.ring.joined import JoinedBatch
from lakelog.ring.reading import RingReader
from lakelog.status import AppendStatus, PutStatus


def light(number: int) -> Message:
    return message(number, properties={"INNER_MULTI_DISPATCH": f"%LMQ%{number}"})


@pytest.mark.parametrize("arena_bytes", [0, 30_000, 1 << 20])
def test_producers_together_are_as_one_after_the_other(arena_bytes: int, tmp_path: Path) -> None:
    """Wherever their entries were copied to."""
    encoder = an_encoder(lights=10)
    rigs, arena = [a_rig(lights=10) for _ in range(3)], Arena(arena_bytes)
    readers = [RingReader(rig.memory, rig.reader.checks, arena) for rig in rigs]
    with a_log(tmp_path / "a", encoder) as straight, a_log(tmp_path / "b", encoder) as ringed:
        wanted = []
        for number, name in enumerate(PUTS):
            if "no queue" not in name:
                wanted.append((number % 3, straight.put(encoder, PUTS[name])))
                rigs[number % 3].offer(PUTS[name])
        takens = [reader.take(1 << 30) for reader in readers]
        in_order = [takens[owner].pop(0) for owner, _ in wanted]
        joined = JoinedBatch(in_order, arena)
        assert joined.count == sum(len(results) for _, results in wanted)
        ringed.log.append(joined, [])
        joined.answer(PutStatus.PUT_OK)
        assert ringed.content == straight.content
        assert ringed.queue_offsets.snapshot() == straight.queue_offsets.snapshot()
        found = [rig.answers() for rig in rigs]
        for owner, results in wanted:
            assert list(found[owner].pop(0).results()) == list(results)


def test_side_by_side_they_are_not_copied_again() -> None:
    rig = a_rig()
    for name in ("columns", "few", "one", "many"):
        rig.offer(PUTS[name])
    joined = JoinedBatch(rig.take(), rig.arena)
    joined.place(0, 1 << 30, QueueOffsets(), STORED_MS)
    assert isinstance(joined.buffer, memoryview)
    assert decode_run(joined.buffer).end_offset == len(joined.buffer)


def test_a_light_queue_too_many_refuses_only_its_own_entry(tmp_path: Path) -> None:
    rig = a_rig(lights=2)
    with a_log(tmp_path, rig.encoder) as log:
        puts = [[light(1)], [light(2)], [message(5), light(3)], [light(2)], columns(64)]
        for messages in puts:
            rig.offer(messages)
        joined = rig.append(log.log)
        assert [part.sequence for part, _ in joined.refused] == [3]
        answers = rig.answers()
        with pytest.raises(PutRefused, match="max_light_queues") as caught:
            answers.pop(2).results()
        assert caught.value.status is PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
        results = [result for answer in answers for result in answer.results()]
        batch = decode_run(log.content)
        assert batch.end_offset == len(log.content)
        assert batch.starts.tolist() == [result.physical_offset for result in results]
        assert batch.sizes.tolist() == [result.size for result in results]
        assert log.queue_offsets.next(("%LMQ%2", 0)) == 2
        assert log.queue_offsets.next(("%LMQ%3", 0)) == 0


def test_if_all_are_refused_nothing_is_written(tmp_path: Path) -> None:
    rig = a_rig(lights=0)
    with a_log(tmp_path, rig.encoder) as log:
        rig.offer([light(1)])
        rig.offer([light(2)])
        joined = JoinedBatch(rig.take(), rig.arena)
        with pytest.raises(PutRefused, match="LMQ") as caught:
            log.log.append(joined, [])
        joined.refuse(caught.value)
        assert log.content == b""
    for answer in rig.answers():
        with pytest.raises(PutRefused, match="max_light_queues"):
            answer.results()


def test_it_goes_into_the_next_segment_as_a_whole(tmp_path: Path) -> None:
    rig = a_rig(lights=5)
    with a_log(tmp_path, rig.encoder) as log:
        log.put(rig.encoder, [message(body=bytes(SEGMENT_BYTES - 5000))])
        rig.offer([message(body=bytes(3000))])
        rig.offer([message(1, body=bytes(3000), properties=LIGHT)])
        rig.append(log.log)
        offsets = [each.results()[0].physical_offset for each in rig.answers()]
        assert offsets[0] == SEGMENT_BYTES
        assert log.queue_offsets.next(("%LMQ%a", 0)) == 1


def test_a_status_of_no_room_is_passed_on() -> None:
    rig = a_rig()
    rig.offer([message()])
    rig.offer([message()])
    joined = JoinedBatch(rig.take(), rig.arena)
    assert joined.place(0, 200, QueueOffsets(), STORED_MS) is AppendStatus.END_OF_FILE
