"""What a strategy gets, for a test: records, contexts, counted hook calls, copies of stores."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from lakelog.files.filesystem import FileSystem, RealFileSystem, chunks
from lakelog.format.encoder import Encoder, Limits, RoundRobin
from lakelog.format.layout import TMP_DIR
from lakelog.format.queue_offsets import QueueOffsets
from lakelog.format.record_batch import RecordBatch, decode_run
from lakelog.hooks import Context
from lakelog.hooks.kinds import StoreSettings
from lakelog.message import Message
from lakelog.registry import Registry
from lakelog.results import AppendStatus

SEGMENT_BYTES: Final = 1 << 30
STORED_AT_MS: Final = 1_700_000_000_000


def messages(count: int, topic: str = "orders", queues: int = 2) -> list[Message]:
    """Different messages, alternating between queues, each with a tag and a key."""
    return [
        Message(topic, b"body %d" % at, tags=f"t{at % 3}", keys=f"k{at}", queue_id=at % queues)
        for at in range(count)
    ]


def encode_log(items: Sequence[Message], base_offset: int = 0) -> bytes:
    """The records of ``items`` back to back, as in a log from ``base_offset`` on."""
    encoder = Encoder(
        limits=Limits.of(4 << 20, SEGMENT_BYTES),
        store_host="127.0.0.1:10911",
        record_crc=False,
        max_light_queues=None,
        queues=RoundRobin(4),
    )
    offsets = QueueOffsets()
    log = bytearray()
    for item in items:
        batch = encoder.encode([item])
        place = base_offset + len(log)
        status = batch.place(place, SEGMENT_BYTES, offsets, STORED_AT_MS + len(log))
        assert status is AppendStatus.PUT_OK
        batch.advance(offsets)
        log += batch.buffer
    return bytes(log)


def record_batch(items: Sequence[Message], base_offset: int = 0) -> RecordBatch:
    """The same records as columns, as dispatchers receive them."""
    batch = decode_run(encode_log(items, base_offset), base_offset)
    assert len(batch) == len(items)
    return batch


def context_of(
    path: Path, *, read_only: bool = False, files: FileSystem | None = None, **core: Any
) -> Context:
    """A context for a store in ``path``, as an open of it would make.

    :param read_only: as for a store that is open for reading, and for followers
    :param files: the file system; by default that of the operating system
    :param core: settings of the core, such as ``segment_size_bytes=1 << 20``
    """
    seam = RealFileSystem() if files is None else files
    return Context(path, StoreSettings(**core), seam, read_only=read_only)


@contextmanager
def count_hook_calls(registry: Registry) -> Iterator[list[str]]:
    """Collect the name of every hook that is called inside the ``with`` block.

    ::

        with count_hook_calls(registry) as calls:
            store.put(message)
        assert calls == []
    """
    calls: list[str] = []
    undo = registry.plugged.manager.add_hookcall_monitoring(
        before=lambda name, _methods, _arguments: calls.append(name),
        after=lambda _outcome, _name, _methods, _arguments: None,
    )
    try:
        yield calls
    finally:
        undo()


def copy_store(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> Path:
    """Copy a directory to a new name, without sockets, which are useless in a copy.

    Holes stay holes: an index file of 420 MB has mostly nothing else.

    A running store creates segments in a temporary folder and renames them; files that vanish from
    there are skipped. Raises like :func:`shutil.copytree`.
    """
    return Path(shutil.copytree(source, target, ignore=_sockets, copy_function=_copy))


def _copy(source: str, target: str) -> None:
    try:
        with closing(RealFileSystem().open(Path(source))) as reading, open(target, "wb") as writing:
            size_bytes = reading.size()
            for position, data in chunks(reading.next_data, reading.read_at, 0, size_bytes):
                writing.seek(position)
                writing.write(data)
            writing.truncate(size_bytes)
        shutil.copystat(source, target)
    except FileNotFoundError:
        if Path(source).parent.name != TMP_DIR:
            raise


def _sockets(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if Path(folder, name).is_socket()}
