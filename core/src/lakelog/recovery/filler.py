"""Bytes that do not belong to the log go to quarantine, and filler records replace damage.

The folder ``lakelog/quarantine/`` holds bytes from behind the end of the log, from behind the end
of a segment, or from a gap. A file holds the bytes only; its name consists of their log offset,
length and SHA-256. ``quarantine.jsonl`` has a line for each: ``file``, ``segment``, ``position`` in
it, ``offset`` in the log, ``length``, ``reason`` and ``time`` (ISO 8601, UTC). Nothing is ever
removed.

Filler records are whole, of exactly the size of the damage, and in a topic of their own.

A RocketMQ store stops at the first bytes that are not a whole record, and cuts the log there. A
filler in their place keeps everything behind it. Its body describes the damage in JSON, padded by
spaces. If the damage is too small for the whole topic name, only its first characters are used.
The filler is then marked as a rolled-back transaction, which neither store puts into a queue.
Damage up to the end of a segment becomes a blank record. The former bytes are durable in quarantine
before they are overwritten.

A recovery fills the gaps that the crash may have caused, so that no append follows a hole: lakelog
keeps proved records behind it, and acknowledges later appends. Bytes that were durable before and
are damaged now stay unchanged: a repair may need them, and the disk may return them later.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.dispatch import NamedDispatcher, forget
from lakelog.errors import StoreError
from lakelog.files import filesystem
from lakelog.files.checkpoint import StoreCheckpoint
from lakelog.files.segment_files import SegmentFile
from lakelog.format import layout
from lakelog.format.checksum import is_sealed
from lakelog.format.encoder import Encoder, Limits, RoundRobin
from lakelog.format.layout import OWN_DIR, QUARANTINE_DIR
from lakelog.format.properties import REPAIRED_TOPIC
from lakelog.format.queue_offsets import Queue, QueueOffsets
from lakelog.format.record_batch import Blank, Damage, RecordBatch
from lakelog.hooks.kinds import StoreSettings
from lakelog.lazy import np
from lakelog.log.sources import keep_damage, read_damage
from lakelog.log.store_directory import StoreDirectory
from lakelog.message import Message
from lakelog.recovery.report import Aside, RecoveryPlan

LIST_FILE: Final = "quarantine.jsonl"

COPYING: Final = "copying"
"""Name of an incomplete copy."""

BEHIND: Final = "behind the end of the log"

_SURPLUS: Final = "behind the end of its segment"


@attrs.frozen
class Tail:
    """Bytes to move to quarantine.

    :ivar path: the segment file
    :ivar position: where they begin in the file
    :ivar length: number of bytes up to the last non-zero one
    :ivar offset: where they begin in the log
    :ivar reason: why they are not part of the log
    """

    path: Path
    position: int
    length: int
    offset: int
    reason: str

    @property
    def end_offset(self) -> int:
        """Offset behind the last byte."""
        return self.offset + self.length


def tails(
    files: filesystem.FileSystem,
    segments: Sequence[SegmentFile],
    size_bytes: int,
    end_offset: int,
    refused: Sequence[int],
    zeros: Mapping[int, int],
) -> Iterator[Tail]:
    """Yield the tails, in log order.

    :param refused: offsets of whole records that do not belong to the log
    :param zeros: by segment start, the offset from which on it is known to be zero
    """
    for each in segments:
        begin = max(end_offset - each.start_offset, 0)
        known = zeros.get(each.start_offset, each.start_offset + size_bytes) - each.start_offset
        stop = min(each.length, size_bytes, known)
        if begin < stop:
            unproven = sum(begin <= at - each.start_offset < stop for at in refused)
            reason = f"{BEHIND}; {unproven} whole records in it are not proved" * bool(unproven)
            yield from _tail(files, each, begin, stop, reason or BEHIND)
        if each.length > size_bytes:
            yield from _tail(files, each, size_bytes, each.length, _SURPLUS)


def _tail(
    files: filesystem.FileSystem, segment: SegmentFile, begin: int, stop: int, reason: str
) -> Iterator[Tail]:
    with closing(files.open(segment.path)) as file:
        last = filesystem.last_nonzero(file.next_data, file.read_at, begin, stop)
    if last is not None:
        yield Tail(segment.path, begin, last + 1 - begin, segment.start_offset + begin, reason)


def keep(files: filesystem.FileSystem, path: Path, tail: Tail) -> Aside:
    """Copy bytes of a segment to the quarantine of the store directory ``path``, durably.

    Bytes already in quarantine are not copied again. A copy from an interrupted recovery counts
    too, if the segment's bytes differ only where they have been zeroed since.

    Raises :class:`~lakelog.errors.StoreError` if the copy fails, such as for lack of space, and
    then leaves no new file; ``OSError`` if the segment cannot be opened.
    """
    folder = path / OWN_DIR / QUARANTINE_DIR
    with closing(files.open(tail.path)) as source:
        try:
            kept = _there(files, folder, source, tail)
            if kept is None:
                files.make_dir(folder)
                kept = _copy(files, folder, source, tail)
        except OSError as error:
            raise StoreError(
                f"no copy of {tail.length} bytes of {tail.path} could be kept: "
                f"{error.strerror or error}; nothing was changed. Make room, or make the folder "
                "writable",
                path=folder,
            ) from error
    _note(files, folder, kept, tail)
    return Aside(tail.offset, tail.end_offset, tail.reason, kept)


def entries(files: filesystem.FileSystem, path: Path) -> list[dict[str, Any]]:
    """The entries of the quarantine of the store directory ``path``, oldest first."""
    return list(_lines(files, path / OWN_DIR / QUARANTINE_DIR))


def _there(
    files: filesystem.FileSystem, folder: Path, source: filesystem.File, tail: Tail
) -> Path | None:
    """An earlier copy that contains all of these bytes that are non-zero, if any."""
    begin = f"{tail.offset:020d}-"
    for name, size in files.list(folder):
        if name.startswith(begin) and name.endswith(".bytes") and size >= tail.length:
            with closing(files.open(folder / name)) as file:
                if _holds(file, source, tail):
                    return folder / name
    return None


def _holds(kept: filesystem.File, source: filesystem.File, tail: Tail) -> bool:
    for at, data in _pieces(source, tail):
        new = np.frombuffer(data, np.uint8)
        old = np.frombuffer(kept.read_at(at, len(data)), np.uint8)
        if not ((new == old) | (new == 0)).all():
            return False
    return True


def _copy(files: filesystem.FileSystem, folder: Path, source: filesystem.File, tail: Tail) -> Path:
    temporary = folder / COPYING
    try:
        digest = _fill(files, temporary, source, tail)
        target = folder / f"{tail.offset:020d}-{tail.length}-{digest[:16]}.bytes"
        files.rename(temporary, target)
    except BaseException:  # Ctrl-C too: half a copy would fill the disk
        with suppress(OSError):
            files.unlink(temporary)
        raise
    files.sync_dir(folder)
    return target


def _fill(files: filesystem.FileSystem, target: Path, source: filesystem.File, tail: Tail) -> str:
    from hashlib import sha256  # slow to import

    digest = sha256()
    with closing(files.open(target, write=True, create=True)) as file:
        file.truncate(0)
        for at, data in _pieces(source, tail):
            file.write_at(at, data)
            digest.update(data)
        file.sync()
    return digest.hexdigest()


def _pieces(source: filesystem.File, tail: Tail) -> Iterator[tuple[int, bytes]]:
    for at in range(0, tail.length, filesystem.WINDOW_BYTES):
        yield at, source.read_at(tail.position + at, min(filesystem.WINDOW_BYTES, tail.length - at))


def _note(files: filesystem.FileSystem, folder: Path, kept: Path, tail: Tail) -> None:
    """Record the origin of a copy, once."""
    known = list(_lines(files, folder))
    if any(each.get("file") == kept.name for each in known):
        return
    line = {
        "file": kept.name,
        "segment": tail.path.name,
        "position": tail.position,
        "offset": tail.offset,
        "length": tail.length,
        "reason": tail.reason,
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
    text = "".join(json.dumps(each) + "\n" for each in (*known, line))
    filesystem.write_file(files, folder / LIST_FILE, text.encode())


def _lines(files: filesystem.FileSystem, folder: Path) -> Iterator[dict[str, Any]]:
    content = filesystem.read_file(files, folder / LIST_FILE) or b""
    for line in content.splitlines():
        with suppress(ValueError):  # the line was edited; the copies are named well enough
            found = json.loads(line)
            if isinstance(found, dict):
                yield found


FILLER_TOPIC: Final = REPAIRED_TOPIC

MOST_FILLER_BYTES: Final = 4 << 20
"""The largest filler; longer damage gets several."""

_LONG_BYTES: Final = 64 << 10

_NOTICE_BYTES: Final = 1 << 10
"""Limit for the first filler of long damage: queue units of lost messages may point there."""

_HOST: Final = "127.0.0.1:0"

_LIMITS: Final = Limits(MOST_FILLER_BYTES, MOST_FILLER_BYTES)


@attrs.frozen
class LogGap:
    """A range of one segment without a whole record, followed by a record.

    :ivar offset: offset of the first byte
    :ivar end_offset: offset behind the last byte
    :ivar reason: the problem
    :ivar store_timestamp_ms: store time of the record before, in ms since 1970; that of the
        fillers too, since store times must not decrease
    :ivar sealed: whether fillers end with ``__CRC32#``
    """

    offset: int
    end_offset: int
    reason: str
    store_timestamp_ms: int
    sealed: bool

    @property
    def size_bytes(self) -> int:
        """The length of the range."""
        return self.end_offset - self.offset


def least_filler_bytes(*, sealed: bool) -> int:
    """The size of the shortest possible record: empty body, topic of one byte."""
    return layout.RECORD_MIN_BYTES + 1 + (layout.RECORD_CRC_BYTES if sealed else 0)


class FillerMaker:
    """Builds fillers in log order, with consecutive queue offsets.

    :param queue: of :data:`FILLER_TOPIC`; must have no record behind the first gap
    :param next_offset: the queue offset of the first filler
    :param now_ms: time of the repair, in ms since 1970
    """

    def __init__(self, queue: Queue, next_offset: int, now_ms: int) -> None:
        self._queue = queue
        self._queue_offsets = QueueOffsets({queue: next_offset})
        self._now_ms = now_ms

    @property
    def next_offset(self) -> int:
        """The queue offset of the next filler."""
        return self._queue_offsets.next(self._queue)

    def make(self, gap: LogGap) -> Iterator[tuple[int, bytes]]:
        """Yield offset and bytes of the records that fill ``gap``, which must be large enough."""
        at = gap.offset
        for size in _sizes(gap.size_bytes):
            part = attrs.evolve(gap, offset=at, end_offset=at + size)
            yield at, self._record(part)
            at += size

    def _record(self, gap: LogGap) -> bytes:
        encoder = Encoder(_LIMITS, _HOST, gap.sealed, None, RoundRobin(1))
        record = encoder.encode_one(self._message(gap))
        record.place(
            gap.offset,
            gap.size_bytes + layout.BLANK_MIN_BYTES,
            self._queue_offsets,
            gap.store_timestamp_ms,
        )
        record.advance(self._queue_offsets)
        return bytes(record.buffer)

    def _message(self, gap: LogGap) -> Message:
        """A message whose record has the length of the gap."""
        room = gap.size_bytes - least_filler_bytes(sealed=gap.sealed) + 1
        topic, queue_id = self._queue
        is_short = room < len(topic)
        return Message(
            topic[:room],
            b"" if is_short else self._body(gap, room - len(topic)),
            queue_id=queue_id,
            sys_flag=layout.ROLLBACK if is_short else 0,
            born_timestamp_ms=self._now_ms,
        )

    def _body(self, gap: LogGap, length: int) -> bytes:
        """The description of the damage, as detailed as the length allows."""
        place = {"offset": gap.offset, "size_bytes": gap.size_bytes}
        full = {"lakelog": "repaired", **place, "time_ms": self._now_ms, "reason": gap.reason}
        texts = (json.dumps(each).encode() for each in (full, place, {}))
        return next((each for each in texts if len(each) <= length), b"").ljust(length)


def _sizes(total_bytes: int) -> list[int]:
    """Split a length into those of the fillers: a short first one, then equal ones."""
    if total_bytes <= _LONG_BYTES:
        return [total_bytes]
    total_bytes -= _NOTICE_BYTES
    count = -(-total_bytes // MOST_FILLER_BYTES)
    each, more = divmod(total_bytes, count)
    return [_NOTICE_BYTES, *(each + (number < more) for number in range(count))]


@attrs.frozen
class Step:
    """One action of a repair, or a problem that it cannot mend.

    :ivar path: the file; :ivar offset: the offset in the log, in bytes
    :ivar what: the action; :ivar why: the problem
    :ivar is_possible: whether it can be mended
    """

    path: Path
    offset: int
    what: str
    why: str
    is_possible: bool = True

    def __str__(self) -> str:
        """A line for a terminal."""
        return f"{self.path}: offset {self.offset}: {self.what}: {self.why}"


@attrs.frozen
class Filling:
    """A gap within one segment, and its replacement.

    :ivar path: the segment file
    :ivar start_offset: offset of the segment's first byte
    :ivar gap: the gap
    :ivar to_the_end: whether the gap extends to the segment's end, so that a blank can fill it
    """

    path: Path
    start_offset: int
    gap: LogGap
    to_the_end: bool

    @property
    def least_bytes(self) -> int:
        """The size of the shortest filler or blank."""
        return (
            layout.BLANK_MIN_BYTES
            if self.to_the_end
            else least_filler_bytes(sealed=self.gap.sealed)
        )

    @property
    def is_possible(self) -> bool:
        """Whether a filler or blank fits into the gap."""
        return self.gap.size_bytes >= self.least_bytes

    def step(self) -> Step:
        """The step that fills it."""
        size, least = self.gap.size_bytes, self.least_bytes
        made = "a blank record" if self.to_the_end else "filler records"
        what = f"keep {size} bytes in quarantine, and put {made} in their place"
        if not self.is_possible:
            what = f"nothing: no record is as short as {size} bytes; the shortest takes {least}"
        return Step(self.path, self.gap.offset, what, self.gap.reason, self.is_possible)


def fillings_of(directory: StoreDirectory, gap: LogGap, size_bytes: int) -> Iterator[Filling]:
    """Yield the fillings of a gap, one per segment."""
    for offset, end in by_segment(gap.offset, gap.end_offset, size_bytes):
        start = offset - offset % size_bytes
        part = attrs.evolve(gap, offset=offset, end_offset=end)
        yield Filling(directory.segment(start), start, part, end == start + size_bytes)


def by_segment(offset: int, end_offset: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Split a range of the log at segment boundaries; yields offset and end offset."""
    while offset < end_offset:
        end = min(end_offset, offset - offset % size_bytes + size_bytes)
        yield offset, end
        offset = end


def keep_gaps(directory: StoreDirectory, fillings: Iterable[Filling]) -> Iterator[Aside]:
    """Copy the gaps to quarantine, except those that are all zero."""
    for filling in fillings:
        gap, position = filling.gap, filling.gap.offset - filling.start_offset
        with closing(directory.files.open(filling.path)) as file:
            held = filesystem.chunks(
                file.next_data, file.read_at, position, position + gap.size_bytes
            )
            is_zero = not any(any(data) for _, data in held)
        if not is_zero:
            tail = Tail(filling.path, position, gap.size_bytes, gap.offset, gap.reason)
            yield keep(directory.files, directory.path, tail)


def fill(files: filesystem.FileSystem, fillings: Iterable[Filling], fillers: FillerMaker) -> None:
    """Write the fillers in log order, and sync; the former bytes are in quarantine already."""
    for filling in fillings:
        gap = filling.gap
        with closing(files.open(filling.path, write=True)) as file:
            if filling.to_the_end:
                write_blank(file, gap.offset - filling.start_offset, gap.size_bytes)
            else:
                for offset, record in fillers.make(gap):
                    file.write_at(offset - filling.start_offset, record)
            file.sync()


def write_blank(file: filesystem.File, position: int, size_bytes: int) -> None:
    """Write the head of a blank record of ``size_bytes`` at ``position``."""
    file.write_at(position, layout.BLANK.pack(size_bytes, layout.MAGIC_BLANK))


@attrs.frozen
class GapFiller:
    """Decides which damage between whole records is filled.

    :ivar vouched: the checkpoint, with the durable end and times
    :ivar whole_end: all bytes before it were written, so that a crash caused no hole there; see
        :func:`~lakelog.processes.shared_page.whole_end`; 0 if unknown
    :ivar clean: whether the store was closed cleanly; nothing is filled then
    :ivar fillings: the gaps to fill
    """

    directory: StoreDirectory
    core: StoreSettings
    vouched: StoreCheckpoint
    whole_end: int
    clean: bool
    fillings: list[Filling] = attrs.field(factory=list)

    def judged(
        self, between: Iterable[Blank | Damage], before_ms: int, behind: RecordBatch
    ) -> Iterator[Damage]:
        """The damage before a run of proved records, each marked if it is to be filled.

        :param before_ms: store time of the record before; 0 if there is none
        """
        for each in between:
            if isinstance(each, Damage):
                fillings = self._fillings(each, before_ms, behind)
                self.fillings.extend(fillings)
                yield attrs.evolve(each, to_fill=bool(fillings))

    def _fillings(self, damage: Damage, before_ms: int, behind: RecordBatch) -> Sequence[Filling]:
        """The fillings of the damage; empty if it stays, or if a gap is too small for a record."""
        behind_ms = int(behind.store_timestamps_ms[0])
        if not self._is_due(damage, behind_ms):
            return ()
        sealed = self.core.record_crc or self.core.require_record_crc
        sealed = sealed or is_sealed(behind[:1].property_strings[0])
        times = before_ms or behind_ms
        gap = LogGap(damage.offset, damage.end_offset, damage.error.what, times, sealed)
        found = tuple(fillings_of(self.directory, gap, self.core.segment_size_bytes))
        return found if all(each.is_possible for each in found) else ()

    def _is_due(self, damage: Damage, behind_ms: int) -> bool:
        """Whether the crash, or an interrupted recovery that filled it, may have caused it."""
        if self.clean:
            return False
        for each in read_damage(self.directory.files, self.directory.path):
            if each.to_fill and each.offset < damage.end_offset and damage.offset < each.end_offset:
                return True
        sound = max(self.vouched.confirm_offset, self.whole_end)
        return damage.offset >= sound and behind_ms >= self.vouched.physic_timestamp_ms


def fill_gaps(
    directory: StoreDirectory,
    plan: RecoveryPlan,
    dispatchers: Sequence[NamedDispatcher],
    start: int,
) -> int:
    """Fill the gaps with records, then remove their entries from ``lakelog/damage.json``.

    The bytes are already in quarantine, and the checkpoint confirms the records behind them.
    Queues and index first drop, durably, their entries from the first gap on. After an
    interruption the next recovery finds the gaps in ``lakelog/damage.json`` and continues.

    :param start: the offset from which the dispatchers need the log
    :returns: the offset to dispatch from after filling

    Raises ``OSError``, and the errors of the dispatchers.
    """
    found, first = plan.found, plan.fillings[0].gap.offset
    start = min(start, first)
    forget(dispatchers, start)
    queue = FILLER_TOPIC, 0
    while queue in found.chains and found.chains[queue].end > first:  # offsets must not decrease
        queue = FILLER_TOPIC, queue[1] + 1
    now_ms = time.time_ns() // 1_000_000
    fillers = FillerMaker(queue, found.next_offsets.get(queue, 0), now_ms)
    fill(directory.files, plan.fillings, fillers)
    found.raise_offset(queue, fillers.next_offset)
    keep_damage(
        directory.files, directory.path, plan.report.start_offset, plan.minimum, plan.staying
    )
    return start
