"""Hypothesis strategies for messages, and for bytes that are nearly records."""

from __future__ import annotations

from hypothesis import strategies as st

from core.tests.format.support import log_of
from lakelog.format.properties import JAVA_BLANK
from lakelog.message import Message

_WORDS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=12
)
_TAGS = _WORDS.map(lambda text: text.replace("|", "").strip(JAVA_BLANK))
TOPICS = st.one_of(
    st.sampled_from(["orders", "a", "ÄÖÜ" * 40, "t" * 127, "t" * 128, "t" * 255]),
    st.text("abcDEF%-_|Ωß", min_size=1, max_size=20),
)
HOSTS = st.sampled_from([None, "10.0.0.1:9876", "[2001:db8::1]:80", "0.0.0.0:0", "[::]:65535"])
PROPERTIES = st.one_of(
    st.none(),
    st.dictionaries(_WORDS.filter(lambda name: name not in ("TAGS", "KEYS")), _WORDS, max_size=3),
)
_INT32 = st.integers(-(2**31), 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)

MESSAGES = st.builds(
    Message,
    topic=TOPICS,
    body=st.binary(max_size=60),
    tags=st.none() | _TAGS,
    keys=st.none()
    | _WORDS.map(lambda text: text.replace(" ", ""))
    | st.lists(st.text("abc1", min_size=1, max_size=4), max_size=3),
    properties=PROPERTIES,
    queue_id=st.none() | st.integers(0, 3) | st.just(2**31 - 1),
    flag=st.just(0) | _INT32,
    sys_flag=st.sampled_from([0, 0x4, 0x8, 0xC, 0x1, 0x301, 0x10, 0x20, 0x80, -1]) | _INT32,
    born_timestamp_ms=st.just(1_699_999_999_000) | _INT64,
    born_host=HOSTS,
    store_host=HOSTS,
    reconsume_times=st.just(0) | _INT32,
    prepared_transaction_offset=st.just(0) | _INT64,
)

BASES = st.sampled_from([0, 1, 4096, 2**40])
_LENGTH_BYTES = st.sampled_from(
    [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\x5b", b"\xff"]
)


@st.composite
def damaged_logs(draw: st.DrawFn) -> tuple[bytes, int]:
    """A log with bits flipped, lengths replaced, pieces removed or inserted; and its offset."""
    base = draw(BASES)
    messages = draw(st.lists(MESSAGES, min_size=1, max_size=4))
    log = bytearray(log_of(messages, record_crc=draw(st.booleans()), base=base))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(0, len(log) - 1)))
        damage = draw(st.sampled_from(["bit", "length", "cut", "put", "end", "move"]))
        if damage == "bit" and log:
            log[at] ^= 1 << draw(st.integers(0, 7))
        elif damage == "length":
            wrong = draw(_LENGTH_BYTES)
            log[at : at + len(wrong)] = wrong
        elif damage == "cut":
            del log[at : at + draw(st.integers(1, 200))]
        elif damage == "put":
            log[at:at] = draw(st.binary(max_size=100))
        elif damage == "end":
            del log[at:]
        else:
            log[at:at] = log[: draw(st.integers(0, len(log)))]
    return bytes(log), base


@st.composite
def hostile_lengths(draw: st.DrawFn) -> tuple[bytes, int]:
    """A log with a wrong value in a field that determines positions of others; and its offset."""
    base = draw(BASES)
    message = draw(MESSAGES)
    record = log_of([message], base=base)
    log = bytearray(record + log_of([message], base=base + len(record)))
    body_at = 72 + 12 * (log[39] >> 4 & 1) + 12 * (log[39] >> 5 & 1) + 12
    topic_at = body_at + 4 + len(message.body)
    at = draw(st.sampled_from([0, 4, 7, 39, body_at, body_at + 2, topic_at, topic_at + 1]))
    wrong = draw(_LENGTH_BYTES | st.binary(min_size=1, max_size=4))
    log[at : at + len(wrong)] = wrong
    return bytes(log), base
