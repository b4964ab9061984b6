"""Light queues: their offsets become a property inside the append."""

from __future__ import annotations

import pytest

from core.tests.codec.support import SEGMENT_BYTES, STORED_MS, an_encoder, placed
from lakelog.codec import decode, decode_run
from lakelog.codec.encoder import Encoder, RoundRobin
from lakelog.codec.limits import Limits
from lakelog.errors import PutRefused
from lakelog.format.queue_offsets import QueueOffsets
from lakelog.message import Message
from lakelog.status import AppendStatus, PutStatus

_A, _B = ("%LMQ%a", 0), ("%LMQ%b", 0)


def _to(dispatch: str, **more: str) -> Message:
    return Message("t", b"x", queue_id=0, properties={"INNER_MULTI_DISPATCH": dispatch, **more})


@pytest.mark.parametrize("record_crc", [False, True])
def test_offsets_are_written_and_taken(record_crc: bool) -> None:
    offsets = QueueOffsets({_A: 7})
    encoder = an_encoder(lights=10, record_crc=record_crc)
    record = placed(encoder.encode_one(_to("%LMQ%a,%LMQ%b", Z="1")), offsets, 50)
    decoded = decode(record, offset=50)
    properties = decoded.properties_bytes[: -20 if record_crc else None]
    assert properties == (
        b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02Z\x011\x02INNER_MULTI_QUEUE_OFFSET\x017,0\x02"
    )
    assert [offsets.next(queue) for queue in (_A, _B, ("t", 0))] == [8, 1, 1]
    assert ("__CRC32#" in decoded.properties) is record_crc


@pytest.mark.parametrize("dispatch", ["", "plain", "plain,other"])
def test_without_light_queues_nothing_is_added(dispatch: str) -> None:
    record = placed(an_encoder(lights=10).encode_one(_to(dispatch)))
    assert "INNER_MULTI_QUEUE_OFFSET" not in decode(record).properties


def test_switched_off_it_is_a_property_like_any_other() -> None:
    offsets = QueueOffsets()
    record = placed(an_encoder(lights=None).encode_one(_to("%LMQ%a")), offsets)
    assert "INNER_MULTI_QUEUE_OFFSET" not in decode(record).properties
    assert offsets.next(_A) == 0


def test_too_many_light_queues_are_refused() -> None:
    offsets = QueueOffsets({_A: 1})
    encoder = an_encoder(lights=2)
    placed(encoder.encode_one(_to("%LMQ%a,%LMQ%b")), offsets)
    with pytest.raises(PutRefused) as refusal:
        encoder.encode_one(_to("%LMQ%c")).place(0, SEGMENT_BYTES, offsets, STORED_MS)
    assert refusal.value.status is PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
    placed(encoder.encode_one(_to("%LMQ%b")), offsets)
    assert offsets.next(_B) == 2


@pytest.mark.parametrize("count", [3, 100])
def test_in_a_batch_each_message_counts_on_from_the_one_before(count: int) -> None:
    offsets = QueueOffsets({_A: 5})
    batch = an_encoder(lights=10).encode([_to("%LMQ%a") for _ in range(count)])
    assert batch.place(0, 100, offsets, STORED_MS) is AppendStatus.END_OF_FILE
    assert offsets.next(_A) == 5
    run = decode_run(placed(batch, offsets))
    found = [each["INNER_MULTI_QUEUE_OFFSET"] for each in run.properties]
    assert found == [str(5 + at) for at in range(count)]
    assert offsets.next(_A) == 5 + count


def test_too_many_light_queues_in_one_batch() -> None:
    batch = an_encoder(lights=2).encode([_to(f"%LMQ%{at}") for at in range(3)])
    offsets = QueueOffsets()
    with pytest.raises(PutRefused):
        batch.place(0, SEGMENT_BYTES, offsets, STORED_MS)
    assert offsets.snapshot() == {}


def test_properties_that_grow_too_long_in_the_append() -> None:
    used = len("INNER_MULTI_DISPATCH") + len("%LMQ%a") + 2 + len("Z") + 2
    message = _to("%LMQ%a", Z="z" * (32767 - used))
    one = an_encoder(lights=2).encode_one(message)
    status = one.place(0, SEGMENT_BYTES, QueueOffsets(), STORED_MS)
    assert status is AppendStatus.PROPERTIES_SIZE_EXCEEDED


def test_a_record_that_grows_too_long_in_the_append() -> None:
    plain = len(placed(an_encoder().encode_one(_to("%LMQ%a"))))
    encoder = Encoder(Limits(100, plain), "127.0.0.1:1", False, 2, RoundRobin(1))
    one = encoder.encode_one(_to("%LMQ%a"))
    status = one.place(0, SEGMENT_BYTES, QueueOffsets(), STORED_MS)
    assert status is AppendStatus.MESSAGE_SIZE_EXCEEDED
