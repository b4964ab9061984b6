"""The record of one message: every field at its byte, in every layout."""

from __future__ import annotations

import struct
from itertools import product

import pytest

from core.tests.format.support import SEGMENT_BYTES, STORED_MS, an_encoder, crc31, placed, record_of
from lakelog.errors import PutRefused
from lakelog.format.encoder import Encoder, Limits, RoundRobin
from lakelog.format.layout import MAGIC_V1, MAGIC_V2, Transaction, is_queued
from lakelog.format.message_id import MessageId, format_message_id, parse_message_id
from lakelog.format.queue_offsets import QueueOffsets
from lakelog.format.record import decode
from lakelog.format.record_batch import decode_run
from lakelog.message import Message
from lakelog.results import AppendStatus, PutStatus

pytestmark = pytest.mark.both_ways

_BORN_MS = 1_699_999_999_000
_PROPERTIES = (
    b"UNIQ_KEY\x017F00000100002A9F0000000000000001\x02WAIT\x01true\x02"
    b"TAGS\x01TagA\x02KEYS\x01k000001\x02"
)
_V4, _V6 = "10.0.0.1:1000", "[2001:db8::1]:40001"
_V4_BYTES = bytes([10, 0, 0, 1]) + (1000).to_bytes(4, "big")
_V6_BYTES = bytes.fromhex("20010db8000000000000000000000001") + (40001).to_bytes(4, "big")


def test_golden_record() -> None:
    properties = _PROPERTIES
    assert len(properties) == 75
    message = Message(
        "Topic-01", b"Store Msg 1", properties=properties, queue_id=3, flag=-7, sys_flag=0x2,
        born_timestamp_ms=_BORN_MS, born_host=_V4, store_host="127.0.0.1:10911",
        reconsume_times=2, prepared_transaction_offset=4096,
    )  # fmt: skip  # one field a line would hide the record
    offsets = QueueOffsets({("Topic-01", 3): 41})
    record = placed(an_encoder().encode_one(message), offsets, 0x1122334455)
    assert len(record) == 185
    fields = [
        (0, (185).to_bytes(4, "big")),
        (4, bytes.fromhex("daa320a7")),
        (8, crc31(b"Store Msg 1").to_bytes(4, "big")),
        (12, (3).to_bytes(4, "big")),
        (16, (-7).to_bytes(4, "big", signed=True)),
        (20, (41).to_bytes(8, "big")),
        (28, bytes.fromhex("0000001122334455")),
        (36, (2).to_bytes(4, "big")),
        (40, _BORN_MS.to_bytes(8, "big")),
        (48, _V4_BYTES),
        (56, STORED_MS.to_bytes(8, "big")),
        (64, bytes.fromhex("7f000001") + (10911).to_bytes(4, "big")),
        (72, (2).to_bytes(4, "big")),
        (76, (4096).to_bytes(8, "big")),
        (84, (11).to_bytes(4, "big")),
        (88, b"Store Msg 1"),
        (99, bytes([8])),
        (100, b"Topic-01"),
        (108, (75).to_bytes(2, "big")),
        (110, properties),
    ]
    for (at, expected), (end, _) in zip(fields, [*fields[1:], (185, b"")], strict=True):
        assert record[at:end] == expected, f"bytes {at} to {end}"


@pytest.mark.parametrize(
    ("topic", "magic", "block"),
    [
        ("t" * 127, MAGIC_V1, b"\x7f" + b"t" * 127),
        ("t" * 128, MAGIC_V2, b"\x00\x80" + b"t" * 128),
        ("t" * 255, MAGIC_V2, b"\x00\xff" + b"t" * 255),
        ("ä" * 64, MAGIC_V2, b"\x00\x80" + b"\xc3\xa4" * 64),
        ("ä" * 63, MAGIC_V1, b"\x7e" + b"\xc3\xa4" * 63),
    ],
)
@pytest.mark.parametrize(("born", "store"), list(product((_V4, _V6), repeat=2)))
def test_topic_lengths_and_host_families(
    topic: str, magic: int, block: bytes, born: str, store: str
) -> None:
    message = Message(
        topic, b"body", queue_id=1, born_host=born, store_host=store, properties=b"A\x01b\x02"
    )
    record = record_of(message, position=77)
    born_bytes, store_bytes = ({_V4: _V4_BYTES, _V6: _V6_BYTES}[host] for host in (born, store))
    flags = (0x10 if born == _V6 else 0) | (0x20 if store == _V6 else 0)
    assert record[4:8] == magic.to_bytes(4, "big")
    assert record[36:40] == flags.to_bytes(4, "big")
    hosts = born_bytes + STORED_MS.to_bytes(8, "big") + store_bytes
    assert record[48:] == hosts + bytes(12) + b"\0\0\0\x04body" + block + b"\0\x04A\x01b\x02"
    decoded, run = decode(record, offset=77), decode_run(record, 77)
    assert (decoded.topic, decoded.magic, decoded.body) == (topic, magic, b"body")
    assert (decoded.born_host, decoded.store_host) == (born, store)
    assert (run.topics, run.hosts()) == ([topic], [(born, store)])
    assert run.message(0) == decoded


def test_each_bit_of_the_system_flags() -> None:
    host_bits = 0x30
    for bit in range(32):
        given = struct.unpack(">i", struct.pack(">I", 1 << bit))[0]
        decoded = decode(record_of(Message("t", b"x", sys_flag=given)))
        assert decoded.sys_flag & 0xFFFFFFFF == (1 << bit) & ~host_bits


@pytest.mark.parametrize("kind", Transaction)
def test_prepared_and_rollback_take_no_queue_offset(kind: Transaction) -> None:
    offsets = QueueOffsets({("t", 0): 9})
    queued = kind in (Transaction.NONE, Transaction.COMMIT)
    message = Message("t", b"x", queue_id=0, sys_flag=kind.value, prepared_transaction_offset=5)
    decoded = decode(placed(an_encoder().encode_one(message), offsets))
    assert decoded.transaction is kind
    assert is_queued(decoded.sys_flag) is queued
    assert decoded.queue_offset == (9 if queued else 0)
    assert decoded.prepared_transaction_offset == 5
    assert offsets.next(("t", 0)) == (10 if queued else 9)


@pytest.mark.parametrize(
    ("host", "offset", "text"),
    [
        ("127.0.0.1:10911", 185, "7F00000100002A9F00000000000000B9"),
        (_V6, 2**40, _V6_BYTES.hex().upper() + "0000010000000000"),
    ],
)
def test_message_ids_both_ways(host: str, offset: int, text: str) -> None:
    assert format_message_id(host, offset) == text
    assert parse_message_id(text) == MessageId(host, offset)
    assert parse_message_id(text.lower()) == MessageId(host, offset)
    assert decode(record_of(Message("t", b"", store_host=host), position=offset)).message_id == text


def test_other_texts_are_no_message_ids() -> None:
    for text in ("", "7F", "G" * 32, "0" * 33, "0" * 55, " " * 32):
        with pytest.raises(ValueError, match="not a message id"):
            parse_message_id(text)


def test_property_bytes_are_kept() -> None:
    odd = b"B\x012\x02A\x011\x02B\x013\x02UNIQ_KEY\x01u\x02broken\x02\xff\x01\xfe\x02end\x01"
    decoded = decode(record_of(Message("t", b"x", properties=odd)))
    assert decoded.properties_bytes == odd
    assert decoded.properties["B"] == "3"
    assert decoded.unique_key == "u"


def test_tags_keys_and_further_properties_stand_in_this_order() -> None:
    message = Message("t", b"", tags="a", keys=["k1", "k2"], properties={"Z": "1", "A": "ä"})
    decoded = decode(record_of(message))
    assert decoded.properties_bytes == "TAGS\x01a\x02KEYS\x01k1 k2\x02Z\x011\x02A\x01ä\x02".encode()
    assert (decoded.tags, decoded.keys) == ("a", ["k1", "k2"])


# --- light queues: their offsets become a property inside the append ---


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


@pytest.mark.parametrize(
    ("lights", "dispatch"), [(10, ""), (10, "plain,other"), (None, "%LMQ%a")], ids=str
)
def test_without_light_queues_it_is_a_property_like_any_other(
    lights: int | None, dispatch: str
) -> None:
    offsets = QueueOffsets()
    record = placed(an_encoder(lights=lights).encode_one(_to(dispatch)), offsets)
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
    batch, none = encoder.encode([_to(f"%LMQ%{at}") for at in range(3)]), QueueOffsets()
    with pytest.raises(PutRefused):
        batch.place(0, SEGMENT_BYTES, none, STORED_MS)
    assert none.snapshot() == {}


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


def test_what_grows_too_long_in_the_append() -> None:
    used = len("INNER_MULTI_DISPATCH") + len("%LMQ%a") + 2 + len("Z") + 2
    message = _to("%LMQ%a", Z="z" * (32767 - used))
    one = an_encoder(lights=2).encode_one(message)
    status = one.place(0, SEGMENT_BYTES, QueueOffsets(), STORED_MS)
    assert status is AppendStatus.PROPERTIES_SIZE_EXCEEDED
    plain = len(placed(an_encoder().encode_one(_to("%LMQ%a"))))
    encoder = Encoder(Limits(100, plain), "127.0.0.1:1", False, 2, RoundRobin(1))
    status = encoder.encode_one(_to("%LMQ%a")).place(0, SEGMENT_BYTES, QueueOffsets(), STORED_MS)
    assert status is AppendStatus.MESSAGE_SIZE_EXCEEDED
