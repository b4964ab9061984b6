"""What :meth:`Appender.put` would refuse does not come in through a ring: check by check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

from core.tests.ring.support import Rig, a_rig
from core.tests.ring.test_through_the_ring import V6, message
from lakelog import Message
from lakelog.codec.limits import Limits
from lakelog.codec.offer import Offer, as_ints
from lakelog.codec.recordcrc import PLACEHOLDER
from lakelog.errors import RingNonsense
from lakelog.ring.checks import Checks
from lakelog.ring.offer import offer_of
from lakelog.ring.reading import RingReader

SIZES = [1, 3, 60]
"""How many records: alone, one by one, in columns."""


def offered(rig: Rig, count: int, **more: Any) -> Offer:
    given = {"queue_id": 1, "tags": None, "keys": None, "properties": b"name\x01value\x02"} | more
    messages = [message(at, body=b"b" * 200, **given) for at in range(count)]
    return offer_of(rig.encoder.encode(messages))


def nonsense(rig: Rig, offer: Offer) -> str:
    assert rig.writer.put(offer, 1) is not None
    with pytest.raises(RingNonsense) as caught:
        rig.take()
    assert caught.value.__cause__ is None
    return str(caught.value)


def patched(offer: Offer, at: int, data: bytes) -> Offer:
    """With ``data`` at a place in the last record."""
    records = bytearray(offer.records)
    size = len(records) // offer.count
    start = (offer.count - 1) * size + (at if at >= 0 else size + at)
    records[start : start + len(data)] = data
    return attrs.evolve(offer, records=records)


FIELDS = {
    "its size": (0, b"\x00\x00\x01\x00"),
    "no size": (0, bytes(4)),
    "magic of a blank": (4, bytes.fromhex("cbd43194")),
    "magic of a long topic": (4, bytes.fromhex("daa320ab")),
    "a checksum of 32 bits": (8, b"\x80"),
    "another checksum": (9, b"\xee\xee\xee"),
    "a queue below zero": (12, b"\xff\xff\xff\xff"),
    "hosts of IPv6 that are none": (39, b"\x30"),
    "a port of the born host": (52, b"\x00\x01\x00\x00"),
    "a port of the store host": (68, b"\xff"),
    "a body below zero": (84, b"\x80"),
    "a body behind the record": (84, b"\x00\x00\xff\x00"),
    "a body, one byte longer": (87, b"\xc9"),
    "a longer topic": (288, b"\x07"),
    "another topic": (289, b"O"),
    "a topic that no directory has": (291, b"/"),
    "longer properties": (-13, b"\x00\x0c"),
    "properties below zero": (-13, b"\x80"),
}


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("name", FIELDS)
def test_fields_that_cannot_be(name: str, count: int) -> None:
    for verify in (True, False) if name != "another checksum" else (True,):
        rig = a_rig(verify_bodies=verify)
        nonsense(rig, patched(offered(rig, count), *FIELDS[name]))


@pytest.mark.parametrize("count", SIZES)
def test_bytes_behind_the_last_record(count: int) -> None:
    rig = a_rig()
    offer = offered(rig, count)
    nonsense(rig, attrs.evolve(offer, records=bytes(offer.records) + b"more"))
    nonsense(a_rig(), attrs.evolve(offer, records=b"few"))


@pytest.mark.parametrize("count", SIZES)
def test_a_short_topic_in_the_layout_of_long_ones(count: int) -> None:
    rig = a_rig()
    offer = offered(rig, count)
    size = len(offer.records) // count
    record = bytearray(bytes(offer.records)[:size].replace(b"\x06orders", b"\x00\x06orders"))
    record[:8] = (size + 1).to_bytes(4) + bytes.fromhex("daa320ab")
    nonsense(rig, attrs.evolve(offer, records=record * count, sizes=as_ints([size + 1] * count)))


@pytest.mark.parametrize("count", SIZES)
def test_a_checksum_is_believed_unless_it_is_to_be_verified(count: int) -> None:
    rig = a_rig()
    rig.writer.put(patched(offered(rig, count), *FIELDS["another checksum"]), 1)
    assert len(rig.take()) == 1


PROPERTIES = {
    "a seal at the end": b"a\x01b\x02" + PLACEHOLDER,
    "a seal in the middle": PLACEHOLDER + b"a\x01b\x02",
    "half a seal": b"a\x01b\x02__CRC32#\x01\x02c\x01d\x02",
    "what would pass for a seal": b"aaaa\x01" + PLACEHOLDER,
    "a zero at the end": b"a\x01b\x00",
    "a lost sector": b"a\x01" + bytes(512) + b"b\x02",
}


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize("sealed", [False, True], ids=["", "sealed"])
def test_properties_that_no_put_writes(name: str, count: int, sealed: bool) -> None:
    bad = PROPERTIES[name]
    if sealed and not bad.endswith(b"\x02"):
        bad = bytes(512) + b"\x02"  # what stands before a seal always ends as a property does
    rig = a_rig(record_crc=sealed)
    good = b"x" * (len(bad) - 1) + b"\x02"
    tail = len(bad) + len(PLACEHOLDER) * sealed
    nonsense(rig, patched(offered(rig, count, properties=good), -tail, bad))


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("properties", [b"", b"a\x01b\x02"])
def test_room_for_seals_there_must_be(count: int, properties: bytes) -> None:
    for at, data in ((-1, b"\x03"), (-20, b"X"), (-10, b"1"), (-21, b"b")):
        if at > -21 or properties:
            rig = a_rig(record_crc=True)
            nonsense(rig, patched(offered(rig, count, properties=properties), at, data))


@pytest.mark.parametrize("count", SIZES)
def test_seals_are_as_the_owner_has_them(count: int) -> None:
    for owner in (False, True):
        rig, other = a_rig(record_crc=owner), a_rig(record_crc=not owner)
        nonsense(rig, offered(other, count))
        rig = a_rig(record_crc=owner)
        nonsense(rig, attrs.evolve(offered(other, count), sealed=owner))
        rig = a_rig(record_crc=owner)
        nonsense(rig, attrs.evolve(offered(rig, count), sealed=not owner))


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("limits", [Limits(199, 1 << 20), Limits(1 << 20, 300)])
def test_what_is_too_large(count: int, limits: Limits) -> None:
    rig = a_rig()
    rig.reader = RingReader(rig.memory, Checks(limits))
    assert "refused" in nonsense(rig, offered(rig, count))


@pytest.mark.parametrize("count", SIZES)
def test_topics_that_cannot_be(count: int) -> None:
    for bad in ("", ".", "..", "a/b", "a\x00", "x" * 256):
        rig = a_rig()
        nonsense(rig, attrs.evolve(offered(rig, count), topics=[bad]))


@pytest.mark.parametrize("count", [3, 60])
@pytest.mark.parametrize(
    ("last", "why"), [(2, "in the table"), (-1, "in the table"), (1, "'ORDERS'")]
)
def test_topics_that_are_not_as_the_table_says(count: int, last: int, why: str) -> None:
    rig = a_rig()
    offer = offered(rig, count)
    records = bytes(offer.records).replace(b"\x06orders", b"\x06ORDERS", 1)
    index = [1, *[0] * (count - 2), last]
    mixed = attrs.evolve(
        offer, records=records, topics=["orders", "ORDERS"], topic_index=as_ints(index)
    )
    assert why in nonsense(rig, mixed)


@pytest.mark.parametrize("count", SIZES)
def test_sizes_that_are_not_those_of_the_records(count: int) -> None:
    def with_sizes(change: Callable[[list[int]], Sequence[int]]) -> None:
        rig = a_rig()
        offer = offered(rig, count)
        sizes = list(memoryview(offer.sizes).cast("B").cast("i"))
        nonsense(rig, attrs.evolve(offer, sizes=as_ints(change(sizes))))

    with_sizes(lambda sizes: [sizes[0] + 1, *sizes[1:]])
    with_sizes(lambda sizes: [*sizes[:-1], 0])
    with_sizes(lambda sizes: [*sizes[:-1], -1])
    if count > 1:
        with_sizes(lambda sizes: [sizes[0] - 1, *sizes[1:-1], sizes[-1] + 1])
        with_sizes(lambda sizes: [90, *sizes[1:-1], sizes[-1] + sizes[0] - 90])
        with_sizes(lambda sizes: [-5, *sizes[1:-1], sizes[-1] + sizes[0] + 5])


def test_hosts_of_both_families_among_many() -> None:
    rig = a_rig()
    messages = [message(at, born_host=V6 if at % 2 else None) for at in range(60)]
    rig.offer(messages)
    assert rig.take()[0].count == 60


def test_light_queues_cannot_be_kept_from_the_owner() -> None:
    """The owner looks for itself, whatever a producer believes of the settings."""
    rig = a_rig(lights=1)
    one = Message("t", b"", queue_id=0, properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
    rig.offer([one])
    rig.encoder = a_rig().encoder
    rig.offer([one])
    first, second = rig.take()
    assert type(first.batch) is type(second.batch)
