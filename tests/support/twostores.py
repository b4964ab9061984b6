"""Compares the rows that lakelog and the real store read from one directory."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import lakelog
from lakelog.files.checkpoint import read_checkpoint
from lakelog.files.filesystem import RealFileSystem
from lakelog_testing.samples import copy_store
from tests.support.commands import invoke
from tests.support.rows import Row, by_kind, difference, parse

Settings = dict[str, Any]


def alike(segment_bytes: int, *, light_queues: bool = True) -> tuple[dict[str, str], Settings]:
    """Return the same settings for the real store and for lakelog: small files of each kind."""
    light = {"enableLmq": "true", "enableMultiDispatch": "true"} if light_queues else {}
    java = {
        "mappedFileSizeCommitLog": str(segment_bytes),
        "mappedFileSizeConsumeQueue": "2000",
        "maxHashSlotNum": "100",
        "maxIndexNum": "400",
        **light,
    }
    plugins = {
        "consume-queue": {"file_entries": 100},
        "hash-index": {"slots": 100, "entries": 400},
    }
    ours = {"segment_size_bytes": segment_bytes, "settings": plugins, "light_queues": light_queues}
    return java, ours


SEGMENT: Final = 128 << 10
JAVA, SETTINGS = alike(SEGMENT)
FULL_QUERY: Final = 64
"""The largest number of results of a query."""
_NEVER: Final = 1 << 62


def recovered(path: Path) -> Path:
    """Return a copy of the store that lakelog recovered and closed."""
    copy = path.with_name(f"{path.name}-recovered")
    copy_store(path, copy)
    lakelog.recover(copy, **SETTINGS)
    return copy


def ours(path: Path, options: Mapping[str, str] = JAVA) -> list[Row]:
    """Return the rows of ``lakelog dump`` with RocketMQ's settings ``options``."""
    conf = path.with_name("conf")
    conf.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
    return dumped(path, conf)


def dumped(path: Path, conf: Path) -> list[Row]:
    """Return the rows of ``lakelog dump`` with the settings of ``conf``; fails on any error."""
    done = invoke("dump", path, "--broker-conf", conf)
    assert (done.exit_code, done.stderr) == (0, "")
    return parse(done.stdout)


def derived(path: Path) -> dict[str, str]:
    """Return a digest of every file of queues and index."""
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for folder in ("consumequeue", "index")
        for file in sorted((path / folder).rglob("*"))
        if file.is_file()
    }


def compare(path: Path, found: list[Row], theirs: list[Row]) -> None:
    """Check that both read the same from a store that was killed, except for keys.

    By keys the real store finds at most the same messages. It may find fewer, or one twice,
    because its recovery deletes index files younger than the checkpoint's time and indexes again
    only from its first segment on; indexes the last message of the file before that twice; and
    leaves entries of lost messages, which count towards the limit of a query.

    :param path: the store as it was left by the kill
    :param found: the rows of lakelog
    :param theirs: the rows of the real store
    """
    rows, real = by_kind(found), by_kind(theirs)
    assert real["store"][0]["loaded"] is True
    assert real.keys().isdisjoint({"badrec", "undecodable", "msgerr"})
    ends = ["minPhyOffset", "maxPhyOffset", "maxPhyOffsetInConsumeQueue"]
    for end in ends if rows["rec"] else ends[:2]:
        assert rows["store"][0][end] == real["store"][0][end], end
    # The real store also lists queues whose messages were all lost in buffers.
    real["queue"] = [row for row in real["queue"] if row["maxOffset"]]
    for kind in ("queue", "msg", "rec", "blank"):
        assert difference(rows[kind], real[kind]) == "", kind
    deleted = first_offset_of_deleted(path)
    for row, other in zip(rows["query"], real["query"], strict=True):
        assert (row["topic"], row["key"]) == (other["topic"], other["key"])
        places, less = row["physOffsets"], other["physOffsets"]
        assert len(places) == len({*places})
        assert {*less} <= {*places}
        if len(places) < FULL_QUERY:
            assert all(offset >= deleted for offset in {*places} - {*less}), row


def first_offset_of_deleted(path: Path) -> int:
    """Return the physical offset from which the real store may lack keys.

    It deletes the index files that end after the checkpoint's time.
    """
    durable_ms = read_checkpoint(RealFileSystem(), path).index_timestamp_ms
    return min(
        (begin for begin, end_ms in _index_files(path) if end_ms > durable_ms), default=_NEVER
    )


def _index_files(path: Path) -> Iterator[tuple[int, int]]:
    for file in (path / "index").glob("*"):
        if file.name.isdigit():
            _, end_ms, begin, _, _, _ = struct.unpack(">4q2i", file.read_bytes()[:40])
            yield begin, end_ms
