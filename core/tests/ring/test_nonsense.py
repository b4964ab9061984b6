"""A producer may write anything into its ring, at any time: the owner drops it, and that is all."""

from __future__ import annotations

import random
import struct
import threading
import time
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from core.tests.ring.support import STORED_MS, Rig, a_rig, an_encoder
from core.tests.ring.test_through_the_ring import PUTS
from lakelog import Message
from lakelog.codec.run import decode_run
from lakelog.errors import RingNonsense
from lakelog.layout import RECORD_CRC_BYTES
from lakelog.message import StoredMessage
from lakelog.queueoffsets import QueueOffsets
from lakelog.ring.joined import JoinedBatch
from lakelog.ring.layout import AT_TAIL, HEADER_BYTES
from lakelog.status import AppendStatus, PutStatus

RING: Final = 128 << 10
NAMES: Final = sorted(name for name in PUTS if "light" not in name)
WORDS: Final = (0, 1, 2, 3, 63, 64, 127, 128, 256, 1 << 20, 1 << 31, 1 << 32, (1 << 63) - 1,
                1 << 63, (1 << 64) - 128, (1 << 64) - 1)  # fmt: skip  # a list of numbers


def message_of(stored: StoredMessage, *, sealed: bool) -> Message:
    """The message of which a put would make this record."""
    properties = stored.properties_bytes
    return Message(
        stored.topic, stored.body, None, None,
        properties[:-RECORD_CRC_BYTES] if sealed else properties, stored.queue_id, stored.flag,
        stored.sys_flag, stored.born_timestamp_ms, stored.born_host, stored.store_host,
        stored.reconsume_times, stored.prepared_transaction_offset,
    )  # fmt: skip  # in the order of the class


def drain(rig: Rig, *, sealed: bool) -> bool:
    """Take and place all that is in the ring; whether that was without nonsense."""
    offsets, end = QueueOffsets(), 0
    for _ in range(100):
        if not rig.reader.waiting():
            return True
        rig.arena.reset()
        try:
            takens = rig.reader.take(1 << 20)
        except RingNonsense as error:
            nonsense = error
            break
        if not takens:  # what was there is to be skipped
            continue
        joined = JoinedBatch(takens, rig.arena)
        assert joined.place(end, 1 << 30, offsets, STORED_MS) is AppendStatus.PUT_OK
        joined.advance(offsets)
        check_log_at(bytes(joined.buffer), end, sealed=sealed)
        end += len(joined.buffer)
        joined.answer(PutStatus.PUT_OK)
    else:
        raise AssertionError("there is no end to it")
    assert nonsense.__cause__ is None, "only the net has caught it"
    with pytest.raises(RingNonsense):
        rig.reader.take(1)
    return False


def check_log_at(data: bytes, offset: int, *, sealed: bool) -> None:
    batch = decode_run(data, offset, sealed=sealed)
    assert batch.end_offset == offset + len(data)
    encoder = an_encoder(record_crc=sealed)
    for at in range(len(batch)):
        stored = batch.message(at)
        one = encoder.encode_one(message_of(stored, sealed=sealed))
        offsets = QueueOffsets({one.queue: stored.queue_offset})
        one.place(stored.physical_offset, 1 << 30, offsets, STORED_MS)
        assert bytes(one.buffer) == bytes(batch.record(at))
        assert stored.body == one.buffer[one._hosts.head.size :][: len(stored.body)]


@st.composite
def scribbles(draw: Any) -> list[tuple[str, int, int]]:
    """What to write where: a kind, a place, and a value."""
    word = st.tuples(
        st.just("word"), st.integers(0, 24), st.sampled_from(WORDS) | st.integers(0, (1 << 64) - 1)
    )
    near = st.tuples(st.just("near"), st.integers(0, 24), st.integers(-256, 256))
    header = st.tuples(st.just("header"), st.sampled_from([8, 8, 8, 9, 10]), st.sampled_from(WORDS))
    octet = st.tuples(st.just("octet"), st.integers(0, 1 << 20), st.integers(0, 255))
    bit = st.tuples(st.just("bit"), st.integers(0, 1 << 20), st.integers(0, 7))
    short = st.tuples(st.just("int"), st.integers(0, 1 << 20), st.integers(-300, 1 << 31 - 1))
    one = st.one_of(word, near, header, octet, bit, bit, short)
    found: list[tuple[str, int, int]] = draw(st.lists(one, min_size=1, max_size=4))
    return found


def scribble(rig: Rig, used: int, kind: str, at: int, value: int) -> None:
    """Garble a word of the entry or of the header, or anything in the entries."""
    words, memory = rig.memory.cast("Q"), rig.memory
    first = HEADER_BYTES >> 3
    if kind == "word":
        words[first + at] = value
    elif kind == "near":
        words[first + at] = (words[first + at] + value) % (1 << 64)
    elif kind == "header":
        words[at] = value
    elif kind == "octet":
        memory[HEADER_BYTES + at % used] = value
    elif kind == "bit":
        memory[HEADER_BYTES + at % used] ^= 1 << value
    else:
        struct.pack_into("=i", memory, HEADER_BYTES + at % (used - 4) // 4 * 4, value)


CASES: Final = given(st.sampled_from(NAMES), st.booleans(), scribbles())


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@CASES
@example("many, of all kinds", True, [("near", 0, 128)])
def test_whatever_a_producer_writes(
    name: str, sealed: bool, what: list[tuple[str, int, int]]
) -> None:
    event(outcome_of(name, sealed, what))


@pytest.mark.slow
@settings(max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@CASES
def test_whatever_a_producer_writes_for_long(
    name: str, sealed: bool, what: list[tuple[str, int, int]]
) -> None:
    event(outcome_of(name, sealed, what))


def outcome_of(name: str, sealed: bool, what: list[tuple[str, int, int]]) -> str:
    rig = a_rig(record_crc=sealed, size=RING, verify_bodies=True)
    rig.offer(PUTS[name])
    rig.offer(PUTS["few"])
    used = rig.memory.cast("Q")[AT_TAIL]
    for each in what:
        scribble(rig, used, *each)
    return "taken" if drain(rig, sealed=sealed) else "dropped"


def test_while_the_owner_looks_at_it() -> None:
    """Nothing that is read twice can have been good the first time and bad the second."""
    stop, least, end = threading.Event(), time.monotonic() + 1.0, time.monotonic() + 60.0
    outcomes = set[bool]()
    chance = random.Random(7)
    while time.monotonic() < (end if len(outcomes) < 2 else least):
        rig = a_rig(size=RING, verify_bodies=True)
        for name in ("few", "columns", "one", "many"):
            rig.offer(PUTS[name])
        used = rig.memory.cast("Q")[AT_TAIL]
        stop.clear()
        thread = threading.Thread(target=_scribble_on, args=(rig, used, chance.random(), stop))
        thread.start()
        try:
            outcomes.add(drain(rig, sealed=False))
        finally:
            stop.set()
            thread.join()
    assert outcomes == {True, False}


def _scribble_on(rig: Rig, used: int, seed: float, stop: threading.Event) -> None:
    chance = random.Random(seed)
    while not stop.wait(0.0003 * chance.random()):
        rig.memory[HEADER_BYTES + chance.randrange(used)] ^= 1 << chance.randrange(8)
