"""The two ends of a ring: order, room, wrapping, sleep, and what a dead owner leaves."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from core.tests.ring.support import STORED_MS, a_log, a_rig
from core.tests.ring.test_through_the_ring import columns, message
from lakelog.errors import EntryTooLarge, PutRefused, RingNonsense, StoreFailed
from lakelog.queueoffsets import QueueOffsets
from lakelog.ring.joined import JoinedBatch
from lakelog.ring.layout import AT_TAIL, HEADER_BYTES
from lakelog.ring.offer import needed_bytes, offer_of
from lakelog.ring.writing import RingWriter
from lakelog.status import PutStatus

SMALL = HEADER_BYTES + 8192


def test_a_full_ring_takes_no_more_until_answers_were_read() -> None:
    rig = a_rig(size=SMALL)
    offer = offer_of(rig.encoder.encode([message(body=b"b" * 1000)]))
    put = 0
    while rig.writer.put(offer, put + 1) is not None:
        put += 1
    assert put == 8192 // needed_bytes(offer)
    for taken in rig.take():
        taken.refuse(PutRefused(PutStatus.UNKNOWN_ERROR, "for the test"))
    assert rig.writer.put(offer, put + 1) is None
    assert len(rig.answers()) == put
    assert rig.writer.put(offer, put + 1) is not None


def test_all_sizes_again_and_again_around_the_ring(tmp_path: Path) -> None:
    rig, chance = a_rig(size=SMALL), Random(3)
    bodies: list[bytes] = []
    with a_log(tmp_path, rig.encoder) as log:
        for number in range(500):
            body = bytes([number % 256]) * chance.randrange(3000)
            while (
                rig.writer.put(offer_of(rig.encoder.encode([message(body=body)])), number + 1)
                is None
            ):
                rig.append(log.log)
                for answer in rig.answers():
                    (result,) = answer.results()
                    assert log.read(result.physical_offset, result.size).count(
                        bodies[answer.sequence - 1]
                    )
            bodies.append(body)


def test_an_entry_of_more_than_half_the_ring() -> None:
    rig = a_rig(size=SMALL)
    assert rig.writer.largest_bytes == 4096
    with pytest.raises(EntryTooLarge, match=r"attach\.ring_bytes"):
        rig.writer.put(offer_of(rig.encoder.encode([message(body=bytes(4096))])), 1)
    assert rig.take() == []


def test_entries_are_taken_in_pieces() -> None:
    rig = a_rig()
    for number in range(10):
        rig.offer([message(number, body=b"b" * 1000)])
    taken = [[each.sequence for each in rig.reader.take(3500)] for _ in range(4)]
    assert taken == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10]]
    assert not rig.reader.waiting()
    rig.offer(columns(64))
    assert len(rig.reader.take(1)) == 1, "the first one is taken whatever its size"


def test_answers_are_read_in_order_even_if_they_come_in_another() -> None:
    rig = a_rig()
    for number in range(3):
        rig.offer([message(number)])
    first, second, third = rig.take()
    no = PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "closing")
    assert not rig.writer.answered()
    third.refuse(no)
    second.refuse(no)
    assert rig.writer.answered()
    assert rig.answers() == []
    assert not rig.writer.answered()
    assert [each.sequence for each in rig.writer.unsettled()] == [1, 2, 3]
    first.refuse(no)
    assert [each.sequence for each in rig.answers()] == [1, 2, 3]
    assert rig.writer.unsettled() == []


def test_errors_come_back_as_what_they_are() -> None:
    rig = a_rig()
    rig.offer([message()])
    rig.offer(columns(64))
    refused, failed = rig.take()
    refused.refuse(PutRefused(PutStatus.OS_PAGE_CACHE_BUSY, "ä" * 500))
    failed.refuse(StoreFailed("the disk"))
    one, two = rig.answers()
    with pytest.raises(PutRefused, match=r"^OS_PAGE_CACHE_BUSY: ä{120}$") as caught:
        one.results()
    assert caught.value.status is PutStatus.OS_PAGE_CACHE_BUSY
    assert list(caught.value.accepted) == []
    with pytest.raises(StoreFailed, match="the disk"):
        two.results()


def test_flush_timeouts_are_results(tmp_path: Path) -> None:
    rig = a_rig()
    with a_log(tmp_path, rig.encoder) as log:
        rig.offer([message()])
        joined = JoinedBatch(rig.take(), rig.arena)
        log.log.append(joined, [])
        joined.answer(PutStatus.FLUSH_DISK_TIMEOUT)
    (answer,) = rig.answers()
    assert answer.results()[0].status is PutStatus.FLUSH_DISK_TIMEOUT


def test_who_is_about_to_sleep_looks_again() -> None:
    rig = a_rig()
    assert rig.reader.sleep()
    assert rig.writer.owner_sleeps()
    rig.offer([message()])
    assert not rig.reader.sleep()
    assert not rig.writer.owner_sleeps()
    assert rig.writer.sleep()
    assert rig.reader.producer_sleeps()
    rig.take()[0].refuse(PutRefused(PutStatus.UNKNOWN_ERROR, "for the test"))
    assert not rig.writer.sleep()
    assert not rig.reader.producer_sleeps()


def test_a_dead_owner_leaves_what_it_was_about_to_do() -> None:
    rig = a_rig()
    for number in range(3):
        rig.offer([message(number)])
    takens = rig.take()
    joined = JoinedBatch(takens[:2], None)
    joined.place(5000, 1 << 20, QueueOffsets(), STORED_MS)
    size = takens[0].record_bytes
    takens[0].answer(PutStatus.PUT_OK)
    assert [each.sequence for each in rig.answers()] == [1]
    second, third = rig.writer.unsettled()
    assert (second.intents, third.intents) == (((5000 + size, STORED_MS),), ())


def test_sequences_go_up() -> None:
    rig = a_rig()
    offer = offer_of(rig.encoder.encode([message()]))
    for sequence in (5, 9, 9):
        rig.writer.put(offer, sequence)
    assert [each.sequence for each in rig.take()] == [5, 9]
    with pytest.raises(RingNonsense, match="entry 9 behind entry 9"):
        rig.take()


def test_a_producer_that_died_in_the_middle_of_an_entry() -> None:
    rig = a_rig()
    rig.offer([message()])
    writer = RingWriter(rig.memory)
    writer._tail = rig.writer._tail
    writer._publish = lambda: None  # type: ignore[method-assign]  # killed before it
    writer.put(offer_of(rig.encoder.encode([message(2)])), 2)
    assert len(rig.take()) == 1
    assert not rig.reader.waiting()


@pytest.mark.parametrize("tail", [64, 128 + (1 << 20), 1 << 63, (1 << 64) - 128])
def test_tails_that_cannot_be(tail: int) -> None:
    rig = a_rig()
    rig.memory.cast("Q")[AT_TAIL] = tail
    with pytest.raises(RingNonsense, match="its tail"):
        rig.take()


def test_a_tail_that_goes_back() -> None:
    rig = a_rig()
    rig.offer([message()])
    rig.offer([message()])
    rig.reader.take(1)
    rig.memory.cast("Q")[AT_TAIL] -= 128
    with pytest.raises(RingNonsense, match="its tail"):
        rig.take()


@pytest.mark.parametrize("total", [0, 64, 1 << 19, (1 << 64) - 128])
def test_entries_that_do_not_end_in_the_ring(total: int) -> None:
    rig = a_rig()
    rig.offer([message()])
    rig.memory.cast("Q")[HEADER_BYTES >> 3] = total
    with pytest.raises(RingNonsense, match="where there are"):
        rig.take()
