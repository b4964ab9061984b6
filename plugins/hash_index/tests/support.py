"""Records by hand, a store directory with a log of them, and indexes over it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs

from lakelog.files.checkpoint import CheckpointKeeper, StoreCheckpoint
from lakelog.files.filesystem import FileSystem, RealFileSystem
from lakelog.format.checksum import CRC31_MASK, crc32
from lakelog.format.layout import HEAD_V4, MAGIC_V1, segment_name
from lakelog.format.record_batch import RecordBatch, decode_run
from lakelog.hooks import Context
from lakelog.hooks.kinds import StoreSettings
from lakelog_hash_index.owner import OwnerIndex
from lakelog_hash_index.plugin import HashIndexSettings, make
from lakelog_hash_index.reader import ReaderIndex

SEGMENT_BYTES = 64 << 10
NOW_MS = 1_700_000_000_000
FOREVER = (0, (1 << 63) - 1)
SMALL = HashIndexSettings(slots=3, entries=6)


@attrs.frozen
class Rec:
    """The parts of a record that an index uses."""

    properties: bytes = b""
    topic: str = "t"
    time_ms: int = NOW_MS
    sys_flag: int = 0

    @classmethod
    def keyed(cls, keys: str, **others: Any) -> Rec:
        return cls(b"KEYS\x01" + keys.encode() + b"\x02", **others)


def record(offset: int, rec: Rec) -> bytes:
    """A record of version 1 with IPv4 hosts and a body of one byte."""
    topic = rec.topic.encode()
    size = HEAD_V4.size + 1 + 1 + len(topic) + 2 + len(rec.properties)
    head = HEAD_V4.pack(
        *(size, MAGIC_V1, crc32(b"x") & CRC31_MASK, 0, 0, 0, offset, rec.sys_flag, rec.time_ms),
        *(bytes(8), rec.time_ms, bytes(8), 0, 0, 1),
    )
    lengths = len(rec.properties).to_bytes(2, "big")
    return b"".join((head, b"x", bytes([len(topic)]), topic, lengths, rec.properties))


def batch_of(recs: Iterable[Rec], base_offset: int = 0) -> RecordBatch:
    """Records back to back."""
    log = bytearray()
    count = 0
    for rec in recs:
        log += record(base_offset + len(log), rec)
        count += 1
    batch = decode_run(bytes(log), base_offset)
    assert len(batch) == count
    return batch


def write_log(path: Path, batch: RecordBatch) -> None:
    """Write the log of a store, of one segment."""
    (path / "commitlog").mkdir(parents=True, exist_ok=True)
    content = bytes(batch.buffer).ljust(SEGMENT_BYTES, b"\x00")
    (path / "commitlog" / segment_name(0)).write_bytes(content)


def context_of(path: Path, *, read_only: bool, files: FileSystem | None = None) -> Context:
    files = files or RealFileSystem()
    core = StoreSettings(segment_size_bytes=SEGMENT_BYTES)
    return Context(path, core, files, CheckpointKeeper(files, path), read_only)


def owner(
    path: Path, settings: HashIndexSettings = SMALL, files: FileSystem | None = None
) -> OwnerIndex:
    path.mkdir(parents=True, exist_ok=True)
    index = make(settings, context_of(path, read_only=False, files=files))
    assert isinstance(index, OwnerIndex)
    return index


def reader(path: Path, settings: HashIndexSettings = SMALL) -> ReaderIndex:
    index = make(settings, context_of(path, read_only=True))
    assert isinstance(index, ReaderIndex)
    return index


def resumed(index: Any, batch: RecordBatch, minimum: int = 0) -> Any:
    """Resume, and dispatch the records from the returned offset on."""
    start = index.resume(minimum, batch.end_offset)
    index.dispatch(batch[int((batch.physical_offsets < start).sum()) :])
    return index


def built(path: Path, recs: Sequence[Rec], settings: HashIndexSettings = SMALL) -> RecordBatch:
    """A cleanly closed store with log, index and checkpoint."""
    batch = batch_of(recs)
    index = resumed(owner(path, settings), batch)
    write_log(path, batch)
    index.close()
    return batch


def find(index: Any, key: str, topic: str = "t", window: tuple[int, int] = FOREVER) -> list[int]:
    return list(index.offsets(topic, key, *window))


def index_paths(path: Path) -> list[Path]:
    return sorted((path / "index").iterdir())


def index_timestamp(path: Path) -> int:
    return CheckpointKeeper(RealFileSystem(), path).read().index_timestamp_ms


def vouch(path: Path, time_ms: int) -> None:
    CheckpointKeeper(RealFileSystem(), path).advance(StoreCheckpoint(index_timestamp_ms=time_ms))


def poke(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in path.rglob("*") if each.is_file()}


RECS = [Rec.keyed(f"k{at} all", time_ms=NOW_MS + 1000 * at) for at in range(8)]
