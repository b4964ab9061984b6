"""The real store opens stores of lakelog: every message is present, each field as it was put."""

from __future__ import annotations

import base64
import random
import zlib
from ipaddress import IPv6Address
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import lakelog
from lakelog import Message
from lakelog.format.layout import BLANK_MIN_BYTES, COMMIT, PREPARED, ROLLBACK
from lakelog.format.properties import decode_properties
from lakelog_queues.store import QueueParts
from tests.support.fixtures import EXACT
from tests.support.rows import by_kind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakelog import PutResult, Store
    from tests.oracle.java import Oracle
    from tests.support.fixtures import StoreFixtures
    from tests.support.rows import Row

SEGMENT = 2 << 20
MESSAGES = 8_000
JAVA = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "40000",
}
QUEUES: dict[str, Any] = {"consume-queue": {"file_entries": 3000}}
JAVA_CRC = {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"}
TOPICS = ("orders", "Ünïcode-Größe", "t" * 127, "u" * 128, "v" * 200)
HOSTS = ("10.0.0.1:9876", "255.255.255.255:65535", "[2001:db8::1]:80", "[::1]:65535")
BODIES = (0, 1, 91, 100, 900, 4096)
LARGE = (15 << 10, (16 << 10) + 1, 500_000, 1 << 20)


@attrs.frozen
class Put:
    """A message that was put, and its result."""

    message: Message
    result: PutResult


def a_message(chance: random.Random, number: int) -> Message:
    size = LARGE[number // 1000 % 4] if number % 1000 == 999 else chance.choice(BODIES)
    return Message(
        chance.choice(TOPICS),
        chance.randbytes(size),
        tags=chance.choice((None, "tag", "标签")),
        keys=chance.choice((None, "one", ["one", "two"])),
        properties=chance.choice((None, {"a": "b"}, {"naïve": "ключ", "long": "x" * 300})),
        queue_id=chance.randrange(3),
        flag=chance.choice((0, 1, -1, -(2**31), 2**31 - 1)),
        sys_flag=chance.choice((0, 0, 0, 0, PREPARED, COMMIT, ROLLBACK)),
        born_timestamp_ms=1_700_000_000_000 + number,
        born_host=chance.choice(HOSTS),
        store_host=chance.choice(HOSTS),
        reconsume_times=chance.choice((0, 16)),
        prepared_transaction_offset=chance.choice((0, 2**40)),
    )


def fill(store: Store) -> list[Put]:
    """Make single puts, asynchronous ones, and batches; some batches exceed a segment."""
    chance = random.Random(20_000)
    messages = [a_message(chance, number) for number in range(MESSAGES)]
    puts: list[Put] = []
    while messages:
        count = chance.choice((1, 1, 1, 2, 7, 100, 3000))
        some, messages = messages[:count], messages[count:]
        if count == 1:
            results = [store.put(some[0])]
        elif count == 7:
            results = [future.result() for future in [store.put_async(each) for each in some]]
        else:
            results = list(store.put_batch(some))
        puts += map(Put, some, results)
    return puts


def java_host(host: str) -> str:
    address, _, port = host.rpartition(":")
    if address.startswith("["):
        groups = IPv6Address(address[1:-1]).exploded.split(":")
        address = ":".join(f"{int(group, 16):x}" for group in groups)
    return f"{address}|{port}"


def record_row(put: Put, log: bytes) -> Row:
    """Return the `rec` line that the real store must print."""
    message, result = put.message, put.result
    v6 = (message.born_host or "").startswith("[") * 0x10
    v6 |= (message.store_host or "").startswith("[") * 0x20
    record = log[result.physical_offset : result.end_offset]
    return {
        "kind": "rec",
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": result.queue_offset,
        "physOffset": result.physical_offset,
        "pos": result.physical_offset,
        "storeSize": result.size,
        "magic": "daa320a7" if len(message.topic.encode()) < 128 else "daa320ab",
        "sysFlag": message.sys_flag | v6,
        "flag": message.flag,
        "bodyCRC": zlib.crc32(message.body) & 0x7FFFFFFF if message.body else 0,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": java_host(message.born_host or ""),
        "storeTimestamp": result.store_timestamp_ms,
        "storeHost": java_host(message.store_host or ""),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "rawCrc32": zlib.crc32(record),
    }


def given_properties(message: Message) -> dict[str, str]:
    assert not isinstance(message.properties, bytes)
    given = dict(message.properties or {})
    if message.tags is not None:
        given["TAGS"] = message.tags
    if message.keys is not None:
        given["KEYS"] = message.keys if isinstance(message.keys, str) else " ".join(message.keys)
    return given


def blanks(puts: list[Put]) -> Iterator[tuple[int, int]]:
    """Yield offset and length of each blank, derived only from the results of puts."""
    for before, behind in pairwise(puts):
        end = before.result.end_offset
        if behind.result.physical_offset != end:
            yield end, behind.result.physical_offset - end


@pytest.mark.parametrize("record_crc", [False, True])
def test_the_real_store_reads_every_message(
    record_crc: bool, oracle: Oracle, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    settings = {"segment_size_bytes": SEGMENT, "record_crc": record_crc, **QUEUES}
    with lakelog.open(path, plugins=[], flush="none", **settings) as store:
        puts = fill(store)
        end = store.max_offset
    log = b"".join(file.read_bytes() for file in sorted((path / "commitlog").iterdir()))
    rows = by_kind(oracle.dump(path, JAVA | (JAVA_CRC if record_crc else {})))

    (summary,) = rows["store"]
    assert summary["loaded"] is True
    assert summary["abortFilePresent"] is False
    assert (summary["minPhyOffset"], summary["maxPhyOffset"]) == (0, end)
    assert rows.keys().isdisjoint({"badrec", "undecodable", "msgerr"})

    assert len(puts) == MESSAGES
    assert end > 3 * SEGMENT
    expected = [record_row(each, log) for each in puts]
    assert next((pair for pair in zip(rows["rec"], expected, strict=True) if _differ(pair)), 0) == 0
    found_blanks = [(row["physOffset"], row["size"]) for row in rows["blank"]]
    assert found_blanks == list(blanks(puts))
    assert all(size >= BLANK_MIN_BYTES for _, size in found_blanks)
    compare_queues(puts, rows["msg"], record_crc=record_crc)


def _differ(pair: tuple[Row, Row]) -> bool:
    return pair[0] != pair[1]


def compare_queues(puts: list[Put], found: list[Row], *, record_crc: bool) -> None:
    """Check that each queue has its messages in order, without prepared and rolled back ones."""
    queued = [each for each in puts if not each.message.sys_flag & PREPARED]
    by_place = {row["physOffset"]: row for row in found}
    assert len(found) == len(by_place) == len(queued)
    next_offsets: dict[tuple[str, Any], int] = {}
    for put in queued:
        row, message = by_place[put.result.physical_offset], put.message
        queue = (message.topic, message.queue_id)
        assert (row["cqTopic"], row["cqQueueId"]) == queue
        assert row["cqOffset"] == row["queueOffset"] == next_offsets.get(queue, 0)
        next_offsets[queue] = row["cqOffset"] + 1
        assert base64.b64decode(row["body"] or "") == message.body
        properties = row["properties"]
        if record_crc:
            properties.pop("__CRC32#", None)
        assert properties == given_properties(message)
        assert row["msgId"] == put.result.message_id


def test_the_real_store_goes_on_in_a_store_of_lakelog_and_back(
    oracle: Oracle, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    size = 1 << 20
    java = JAVA | {"mappedFileSizeCommitLog": str(size)}
    with lakelog.open(path, plugins=[], flush="none", segment_size_bytes=size, **QUEUES) as store:
        for number in range(3000):
            store.put(Message("orders", b"%d" % number * 100, queue_id=number % 2))
    oracle.fill(path, java, count=500)
    with lakelog.open(path, plugins=[], flush="none", segment_size_bytes=size, **QUEUES) as store:
        written = list(store.scan())
        assert len(written) == 3500
        result = store.put(Message("orders", b"last", queue_id=0))
        assert result.queue_offset == 1500
        end = store.max_offset
    rows = by_kind(oracle.dump(path, java))
    assert len(rows["rec"]) == 3501
    assert rows["store"][0]["maxPhyOffset"] == end
    assert rows.keys().isdisjoint({"badrec", "undecodable", "msgerr"})
    first = written[0]
    assert decode_properties(first.properties_bytes) == {}


def go_on(path: Path, queues: list[Row], **more: Any) -> dict[int, int]:
    """Put one message into each queue; return queue offsets by physical offset."""
    with lakelog.open(path, flush="none", **more) as store:
        done = {}
        for row in queues:
            result = store.put(Message(row["topic"], b"more", queue_id=row["queueId"]))
            assert result.queue_offset == row["maxOffset"], row
            done[result.physical_offset] = result.queue_offset
    return done


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", [each for each in EXACT if each != "batchcq"])
def test_the_real_store_takes_back_a_store_of_its_own(
    name: str,
    oracle: Oracle,
    store_fixtures: StoreFixtures,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(QueueParts, "deliver", lambda *_: None)  # of delayed messages: it appends
    fixture = store_fixtures.copy(name, tmp_path)
    queues = fixture.expected["queue"]
    done = go_on(fixture.store, queues, broker_conf=fixture.folder / "options")
    rows = by_kind(oracle.dump(fixture.store, fixture.options))
    records = {row["physOffset"]: row for row in rows["rec"]}
    assert len(records) == len(fixture.expected["rec"]) + len(done)
    assert {at: records[at]["queueOffset"] for at in done} == done
    ends = {(row["topic"], row["queueId"]): row["maxOffset"] for row in rows["queue"]}
    for row in queues:
        assert ends[row["topic"], row["queueId"]] == row["maxOffset"] + 1
    assert rows.keys().isdisjoint({"badrec", "undecodable"})
