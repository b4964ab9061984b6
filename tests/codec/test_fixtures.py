"""Every record that the real store wrote decodes, and encodes to the same bytes again."""

from __future__ import annotations

import ipaddress
import zlib
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from lakelog.format.encoder import Encoder, Limits, RoundRobin
from lakelog.format.layout import BLANK, MAGIC_BLANK, is_queued
from lakelog.format.queue_offsets import QueueOffsets
from lakelog.format.record import decode, decode_frame, read_frame
from lakelog.format.record_batch import decode_run
from lakelog.message import Message, StoredMessage
from lakelog.results import AppendStatus
from tests.support.fixtures import EXACT, StoreFixture, StoreFixtures

if TYPE_CHECKING:
    from collections.abc import Iterator

_SEGMENT_BYTES = 1 << 30


def _records(fixture: StoreFixture) -> Iterator[tuple[bytes, int]]:
    """The bytes of each record that the real store listed, and its offset."""
    segments = {int(path.name): path.read_bytes() for path in fixture.store.glob("commitlog/*")}
    starts = sorted(segments)
    for row in fixture.expected["rec"]:
        offset = row["physOffset"]
        start = max(each for each in starts if each <= offset)
        yield segments[start][offset - start : offset - start + row["storeSize"]], offset


def _java_host(host: str) -> str:
    address, _, port = host.rpartition(":")
    ip = ipaddress.ip_address(address.strip("[]"))
    if ip.version == 4:
        return f"{ip}|{port}"
    pieces = ":".join(f"{int(piece, 16):x}" for piece in ip.exploded.split(":"))
    return f"{pieces}|{port}"


def _as_row(stored: StoredMessage, record: bytes) -> dict[str, Any]:
    return {
        "topic": stored.topic,
        "queueId": stored.queue_id,
        "queueOffset": stored.queue_offset,
        "physOffset": stored.physical_offset,
        "storeSize": stored.size,
        "magic": f"{stored.magic:08x}",
        "sysFlag": stored.sys_flag,
        "flag": stored.flag,
        "bodyCRC": stored.body_crc,
        "bornTimestamp": stored.born_timestamp_ms,
        "bornHost": _java_host(stored.born_host),
        "storeTimestamp": stored.store_timestamp_ms,
        "storeHost": _java_host(stored.store_host),
        "reconsumeTimes": stored.reconsume_times,
        "preparedTransactionOffset": stored.prepared_transaction_offset,
        "rawCrc32": zlib.crc32(record),
    }


def _encoded_again(stored: StoredMessage, *, record_crc: bool) -> bytes:
    names = {each.name for each in attrs.fields(Message)} - {"tags", "keys", "properties"}
    fields = {name: getattr(stored, name) for name in names if hasattr(stored, name)}
    message = Message(**fields, properties=stored.properties_bytes)
    limits = Limits.of(4 << 20, _SEGMENT_BYTES)
    one = Encoder(limits, "127.0.0.1:1", record_crc, None, RoundRobin(1)).encode_one(message)
    offsets = QueueOffsets({(stored.topic, stored.queue_id): stored.queue_offset})
    status = one.place(stored.physical_offset, _SEGMENT_BYTES, offsets, stored.store_timestamp_ms)
    assert status is AppendStatus.PUT_OK
    return bytes(one.buffer)


@pytest.mark.parametrize("name", EXACT)
def test_every_record(name: str, store_fixtures: StoreFixtures) -> None:
    fixture = store_fixtures.get(name)
    rows = fixture.expected["rec"]
    assert rows
    for (record, offset), row in zip(_records(fixture), rows, strict=True):
        stored = decode(record, offset=offset)
        view = memoryview(record)
        assert decode_frame(view, read_frame(view, 0, len(view), offset)) == stored
        found = _as_row(stored, record)
        assert found == {key: row[key] for key in found}, f"record at {offset}"
        assert is_queued(stored.sys_flag) or stored.queue_offset == 0
        sealed = stored.properties_bytes[-20:].startswith(b"__CRC32#")
        assert sealed is (name == "propcrc")
        assert _encoded_again(stored, record_crc=sealed) == record, f"record at {offset}"


@pytest.mark.parametrize("name", EXACT)
def test_whole_segments_as_runs(name: str, store_fixtures: StoreFixtures) -> None:
    fixture = store_fixtures.get(name)
    found: list[int] = []
    for path in sorted(fixture.store.glob("commitlog/*")):
        data, start = path.read_bytes(), int(path.name)
        run = decode_run(data, start)
        found += run.physical_offsets.tolist()
        end = run.end_offset - start
        blank = BLANK.pack(len(data) - end, MAGIC_BLANK)
        assert data[end : end + 8] in (blank, bytes(8))
    assert found == [row["physOffset"] for row in fixture.expected["rec"]]
