"""Rings whose both ends are in one process, and logs to put through them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from lakelog import Message
from lakelog.builtin.filewriter import FileWriter
from lakelog.codec import RocketmqAppendCallback
from lakelog.codec.encoder import Encoder
from lakelog.codec.limits import Limits
from lakelog.codec.queuechoice import RoundRobin
from lakelog.commitlog import CommitLog
from lakelog.files import RealFileSystem
from lakelog.health import Health
from lakelog.positions import Confirmations, Positions
from lakelog.preallocate import Preallocator, SegmentMaker
from lakelog.queueoffsets import QueueOffsets
from lakelog.ring.answers import Answer
from lakelog.ring.arena import Arena
from lakelog.ring.checks import Checks
from lakelog.ring.joined import JoinedBatch
from lakelog.ring.memory import make_memory, map_memory
from lakelog.ring.offer import offer_of
from lakelog.ring.reading import RingReader
from lakelog.ring.taken import Taken
from lakelog.ring.writing import RingWriter
from lakelog.segments import Segments
from lakelog.status import PutStatus

HOST = "127.0.0.1:10911"
SEGMENT_BYTES = 1 << 20
LIMITS = Limits.of(4 << 20, SEGMENT_BYTES)
RING_BYTES = 1 << 20


def an_encoder(*, record_crc: bool = False, lights: int | None = None) -> Encoder:
    return Encoder(LIMITS, HOST, record_crc, lights, RoundRobin(4))


def checks(*, record_crc: bool = False, lights: int | None = None, **more: Any) -> Checks:
    return Checks(LIMITS, record_crc, lights, **more)


def a_memory(size: int = RING_BYTES) -> memoryview:
    """A ring's memory, whose descriptor is closed."""
    fd = make_memory(size)
    try:
        return map_memory(fd, size)
    finally:
        os.close(fd)


@attrs.define
class Rig:
    """A producer, its ring, and an owner's end of it.

    :ivar sequence: of the last entry
    """

    encoder: Encoder
    writer: RingWriter
    reader: RingReader
    arena: Arena
    memory: memoryview
    sequence: int = 0

    def offer(self, messages: Sequence[Message], intents: Any = ()) -> None:
        """Put one entry into the ring, which must have room for it."""
        self.sequence += 1
        offer = offer_of(self.encoder.encode(messages))
        assert self.writer.put(offer, self.sequence, intents) is not None

    def take(self) -> list[Taken]:
        """All that is there, into the arena."""
        self.arena.reset()
        return self.reader.take(1 << 30)

    def append(self, log: Any) -> JoinedBatch:
        """One append of all that is there, and the answers."""
        joined = JoinedBatch(self.take(), self.arena)
        log.append(joined, [])
        joined.answer(PutStatus.PUT_OK)
        return joined

    def answers(self) -> list[Answer]:
        return self.writer.answers()


def a_rig(
    *, record_crc: bool = False, lights: int | None = None, size: int = RING_BYTES, **more: Any
) -> Rig:
    memory, arena = a_memory(size), Arena(size)
    the_checks = checks(record_crc=record_crc, lights=lights, **more)
    reader = RingReader(memory, the_checks, arena)
    encoder = an_encoder(record_crc=record_crc, lights=lights)
    return Rig(encoder, RingWriter(memory), reader, arena, memory)


STORED_MS = 4_000_000_000_000
"""Store time of every record: a log's clock never goes back, and this is long from now."""


@attrs.define
class Log:
    """A real log over real files, without a store around it."""

    log: CommitLog
    queue_offsets: QueueOffsets
    preallocator: Preallocator

    @property
    def content(self) -> bytes:
        """All that was appended."""
        return self.read(0, self.log.positions.appended)

    def read(self, position: int, length: int) -> bytes:
        """At most ``length`` bytes; fewer at the end of a segment, and of the log."""
        end = min(position + length, self.log.positions.appended)
        found = []
        while position < end:
            found.append(bytes(self.log.segments.view(position, end - position)))
            position += len(found[-1])
        return b"".join(found)

    def put(self, encoder: Encoder, messages: Sequence[Message]) -> Sequence[Any]:
        """Append without a ring."""
        batch = encoder.encode(messages)
        self.log.append(batch, [])
        return batch.results(PutStatus.PUT_OK)


@contextmanager
def a_log(path: Path, encoder: Encoder) -> Iterator[Log]:
    """An empty log in ``path``."""
    for folder in (path / "log", path / "tmp"):
        folder.mkdir(parents=True)
    maker = SegmentMaker(RealFileSystem(), path / "log", path / "tmp", SEGMENT_BYTES)
    preallocator = Preallocator(maker, ahead=False)
    segments = Segments(maker, preallocator, FileWriter(16 << 10), 0, 0, 0)
    positions, queue_offsets = Positions.at(0, 0), QueueOffsets()
    log = CommitLog(
        segments,
        positions,
        Confirmations(positions),
        queue_offsets,
        RocketmqAppendCallback(encoder),
        Health(path, lambda _: None),
        1000,
        STORED_MS,
    )
    try:
        yield Log(log, queue_offsets, preallocator)
    finally:
        segments.close()
        preallocator.close()
