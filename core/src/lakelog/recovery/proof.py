"""What a store's files prove: which whole records belong to the log, and that its end is lost.

RocketMQ cuts a log by lowering its end: old, whole records with valid checksums stay behind the new
end, and so may their queue units. If fewer bytes are then written, and the last write is torn, the
old records follow a gap.

Later records have an earlier store time only after a wrong clock was corrected, so store times
separate the two. Behind a gap an earlier store time outweighs a queue unit. It also outweighs the
checkpoint if the checkpoint is older than the records before the gap: the log was cut since then.

A gap where a killed owner's append was incomplete is not damage: only the rest of that append,
which was never acknowledged, can follow it.

The sound part of a log is read in several threads, one segment each: contiguous whole records whose
store times do not decrease. They need no further proof, and no record extends over two segments.
Recovery itself reads the log from the end of the sound part on. This reader does not search behind
damage, as a scan does. Only compiled code runs in parallel, since it releases the interpreter lock.

The end of a log can be lost, too. A power cut removes bytes that were never synced, while their
queue units may remain; that is no loss. So after an unclean stop only the checkpoint counts, and
only if lakelog wrote it. RocketMQ confirms unsynced bytes, and keeps that value when it cuts a log.
After a clean stop of lakelog, log and queues agreed, so the checkpoint, the list of queue ends and
the queues all count.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from lakelog import accelerate
from lakelog.errors import BadSegment, StoreError, UnreadableEnd
from lakelog.files.checkpoint import StoreCheckpoint
from lakelog.files.filesystem import FileSystem, RealFileSystem, read_file
from lakelog.files.identity import read_own, write_own
from lakelog.files.queue_ends import DurableQueueEnds, QueueEnd, by_topic, read_kept
from lakelog.format import layout
from lakelog.format.layout import CHECKPOINT_FILE, CONSUMEQUEUE_DIR, OWN_DIR
from lakelog.format.queue_offsets import Queue
from lakelog.format.queue_survey import QueueOffsetSurvey
from lakelog.format.record import decode
from lakelog.format.record_batch import Blank, Damage, Piece, RecordBatch, decode_run
from lakelog.lazy import np
from lakelog.log.store_directory import StoreDirectory
from lakelog.message import StoredMessage
from lakelog.processes.ownership import owner_pid
from lakelog.processes.shared_page import MAGIC, OWNER_PID, page_path, synced_end
from lakelog.recovery.filler import BEHIND, Tail
from lakelog.recovery.report import MissingEnd
from lakelog.runtime.threads import Workers, submitted

if TYPE_CHECKING:
    from numpy.typing import NDArray

UnitAt: TypeAlias = Callable[[Queue, int], "tuple[int, int] | None"]
"""Returns offset and size of the record at a queue offset, from the queue's file."""

_UNFINISHED: Final = f"{BEHIND}: its owner was killed before all of this append was written"

EndBefore: TypeAlias = Callable[[Queue, int], "int | None"]
"""Returns the end of a queue's files, counting only records before a log offset."""


@attrs.define
class Proof:
    """Judges the records of a scan, see :func:`lakelog.log.scan.scan`.

    :ivar seen: the survey of the records accepted so far; the caller updates it
    :ivar confirmed: the log reached at least this offset, according to the checkpoint
    :ivar confirmed_ms: the latest store time in the checkpoint, in ms since 1970
    :ivar unit_at: looks up a unit in the queue files; ``end_before`` looks up their end
    :ivar minimum: offset of the first byte of the log
    :ivar whole_end: all bytes before it were written, see
        :func:`~lakelog.processes.shared_page.whole_end`; ``None`` if unknown
    :ivar refused: offsets of whole records that do not belong to the log
    """

    seen: QueueOffsetSurvey
    confirmed: int
    confirmed_ms: int
    unit_at: UnitAt
    end_before: EndBefore
    minimum: int
    whole_end: int | None = None
    refused: list[int] = attrs.field(factory=list)
    _behind_gap: bool = False

    def leading(self, batch: RecordBatch, accepted: int) -> int:
        """Accept the records before the first unproved one that is older than its predecessor."""
        times = batch.store_timestamps_ms
        last = self.seen.last_timestamp_ms if not accepted else int(times[0])
        if _in_order(batch, last) == len(batch):
            return len(batch)
        before = np.concatenate((np.array([last], np.int64), times[:-1]))
        for at in (times < before).nonzero()[0].tolist():
            if at >= accepted and not self._goes_on(batch, at):
                self.refused.append(int(batch.physical_offsets[at]))
                return int(at)
        return len(batch)

    def _goes_on(self, batch: RecordBatch, at: int) -> bool:
        """Whether an older record directly behind the last one belongs to the log.

        The clock may have been set back. The checkpoint proves such a record. Without a gap before,
        a queue offset that continues its queue proves it too.
        """
        offset = int(batch.physical_offsets[at])
        if offset < self.confirmed:
            return True
        if self._behind_gap:
            return False
        self._note(batch, at)
        return self._continues(batch.message(at), offset, 0)

    def _note(self, batch: RecordBatch, at: int) -> None:
        """Add the queue offsets of the first ``at`` records of a run."""
        if at:
            noted = QueueOffsetSurvey(
                0, 0, next_offsets=self.seen.next_offsets, chains=self.seen.chains
            )
            noted.count(batch[:at])

    def accepts(self, record: memoryview, offset: int, gap_start: int) -> bool:
        """Whether a whole record behind a gap belongs to the log."""
        message = decode(record, verify=False)
        if not self.is_end(gap_start) and self._is_proved(message, offset, gap_start):
            self._behind_gap = True
            return True
        self.refused.append(offset)
        return False

    def is_end(self, gap_start: int) -> bool:
        """Whether the log ends at a gap, regardless of the bytes behind it."""
        return self.whole_end is not None and gap_start >= self.whole_end

    def with_reason(self, tail: Tail) -> Tail:
        """Return ``tail`` with the reason, if it is the rest of an incomplete append."""
        if not self.is_end(tail.offset):
            return tail
        return attrs.evolve(tail, reason=tail.reason.replace(BEHIND, _UNFINISHED, 1))

    def _is_proved(self, message: StoredMessage, offset: int, gap_start: int) -> bool:
        last_ms = self.seen.last_timestamp_ms
        is_older = message.store_timestamp_ms < last_ms
        # The checkpoint proves a record before ``confirmed``. The exception is an older record, if
        # the log has records from after the checkpoint: it was then cut below it, and this is a
        # leftover.
        if offset < self.confirmed and (not is_older or last_ms <= self.confirmed_ms):
            return True
        if is_older:
            return False
        return self._continues(message, offset, offset - gap_start)

    def _continues(self, message: StoredMessage, offset: int, gap_bytes: int) -> bool:
        """Whether a unit points to the record, or its queue offset continues its queue."""
        if message.sys_flag & layout.PREPARED:
            return message.queue_offset == 0  # it takes no queue offset, so no queue contradicts it
        queue, at = (message.topic, message.queue_id), message.queue_offset
        if self.unit_at(queue, at) == (offset, message.size):
            return True
        expected = self._expected(queue, at, offset - gap_bytes)
        if expected is None:
            return False
        if message.sys_flag & layout.INNER_BATCH:
            return at >= expected
        return expected <= at <= expected + gap_bytes // layout.RECORD_MIN_BYTES

    def _expected(self, queue: Queue, at: int, gap_start: int) -> int | None:
        """The next offset of a queue at the gap; ``None`` if unknown."""
        known = self.seen.next_offsets.get(queue)
        if known is not None:
            return known
        end = self.end_before(queue, gap_start)
        if end is not None:
            return end
        return 0 if not self.minimum or not at else None


WINDOW_BYTES: Final = 1 << 20
"""Bytes checked at once; a buffer of this length stays in a processor's cache."""

_MOST_THREADS: Final = 8

_LOG: Final = logging.getLogger("lakelog")


def sound_segments(
    files: FileSystem, commitlog: Path, starts: Sequence[int], size_bytes: int, *, sealed: bool
) -> Iterator[QueueOffsetSurvey]:
    """Yield the sound part of the segments at ``starts``, in order; ends early on any failure.

    Yields nothing without compiled code.

    :param sealed: whether a record without a record checksum is not sound
    """
    if accelerate.current() is None or type(files) is not RealFileSystem:
        return
    count = min(len(starts), len(os.sched_getaffinity(0)), _MOST_THREADS)
    pool = Workers("lakelog-recovery", count)
    try:
        works = [
            partial(
                read_segment,
                commitlog / layout.segment_name(start),
                start,
                size_bytes,
                sealed=sealed,
            )
            for start in starts
        ]
        running = [submitted(pool.submit, "lakelog-recovery", work) for work in works]
        for each in running:
            yield each.result()
    except (OSError, StoreError) as error:  # recovery reads it again, and reports the error
        _LOG.debug("a segment was not read in a thread: %s", error)
    finally:
        pool.shutdown(cancel=True)


def read_segment(path: Path, start: int, size_bytes: int, *, sealed: bool) -> QueueOffsetSurvey:
    """Read the segment at ``start`` from its file as far as it is sound; raises ``OSError``."""
    found = QueueOffsetSurvey(start, start)
    accelerator = accelerate.current()
    with closing(RealFileSystem().open(path)) as file:
        if accelerator is not None:
            plain = accelerator.plain_records(file.fileno(), start, size_bytes, sealed=sealed)
            if plain is not None:
                found.count_plain(plain)
        buffer = memoryview(bytearray(WINDOW_BYTES))
        while found.end_offset < start + size_bytes:
            at = found.end_offset
            length = os.preadv(file.fileno(), [buffer], at - start)
            data = buffer[: min(length, start + size_bytes - at)]
            batch = decode_run(data, at, verify=True, sealed=sealed)
            in_order = batch[: _in_order(batch, found.last_timestamp_ms)]
            if len(in_order):
                found.count(in_order)
            elif data[: layout.BLANK.size] == layout.BLANK.pack(
                start + size_bytes - at, layout.MAGIC_BLANK
            ):
                found.end_offset = start + size_bytes
            if len(in_order) < max(len(batch), 1):
                break
    return found


def _in_order(batch: RecordBatch, last_ms: int) -> int:
    """The number of leading records whose store times do not decrease."""
    times = batch.store_timestamps_ms
    if not len(batch) or int(times[0]) < last_ms:
        return 0
    older = (times[1:] < times[:-1]).nonzero()[0]
    return int(older[0]) + 1 if len(older) else len(batch)


MISSING_FILE: Final = "missing.json"

_WORD_BYTES: Final = 8


@attrs.frozen
class DurabilityClaims:
    """The evidence of the former end of a log.

    :ivar clean: whether the store was closed cleanly
    :ivar kept: lakelog's list of durable queue ends
    :ivar ends: the ends of the queue files
    """

    directory: StoreDirectory
    clean: bool
    checkpoint: StoreCheckpoint
    ends: Mapping[Queue, QueueEnd]
    kept: DurableQueueEnds = attrs.field(init=False)

    @kept.default
    def _kept(self) -> DurableQueueEnds:
        return read_kept(self.directory.files, self.directory.path)

    def any(self) -> bool:
        """Whether there is evidence of any log."""
        has_units = any(each.end for each in self.ends.values())
        return bool(self.checkpoint.confirm_offset or self.kept.marks or has_units)

    def missing(self, end_offset: int) -> tuple[MissingEnd, ...]:
        """The losses behind ``end_offset``, one per source of evidence; changes nothing."""
        if not self._by_lakelog():
            if self.checkpoint.confirm_offset > end_offset:
                _LOG.warning(
                    "%s: the log ends at %d, but the checkpoint confirms %d; another program than "
                    "lakelog wrote it last, so this may be no loss",
                    self.directory.path,
                    end_offset,
                    self.checkpoint.confirm_offset,
                )
            return ()
        return tuple(
            MissingEnd(end_offset, reached, how)
            for reached, how in self._durable()
            if reached > end_offset
        )

    def next_offsets(self) -> dict[Queue, int]:
        """The queue ends reached, including units of missing records."""
        found = {queue: each.end for queue, each in self.ends.items()}
        for queue, end in self.kept.ends.items():
            found[queue] = max(end, found.get(queue, 0))
        return found

    def _durable(self) -> Iterator[tuple[int, str]]:
        yield self.checkpoint.confirm_offset, f"{CHECKPOINT_FILE} confirms it as durable"
        synced = synced_end(self.directory.files, self.directory.path)
        if synced > self.checkpoint.confirm_offset:
            yield synced, "the shared page of the killed owner says that it was synced"
        if self.clean:
            marked = max((each.end for each in self.kept.marks), default=0)
            yield marked, "lakelog/queues.json names its last record"
            reached = max((each.reached for each in self.ends.values()), default=0)
            yield reached, "the queues have units of it, and the stop was a clean one"

    def _by_lakelog(self) -> bool:
        """Whether lakelog was the last writer of the checkpoint.

        After its clean stop, the checkpoint confirms the last record that has units. After any
        other stop, ``abort`` still names the process of the shared page.
        """
        marks = self.kept.marks
        if marks and self.checkpoint.confirm_offset == marks[0].end:
            return True
        return not self.clean and self._died_open()

    def _died_open(self) -> bool:
        files, path = self.directory.files, self.directory.path
        data = read_file(files, page_path(path)) or b""
        words = memoryview(data[: len(data) - len(data) % _WORD_BYTES]).cast("Q")
        if len(words) <= OWNER_PID or words[0] != MAGIC:
            return False
        return words[OWNER_PID] == owner_pid(files, path)


def refuse_missing(missing: Sequence[MissingEnd], commitlog: Path) -> None:
    """Raise :class:`~lakelog.errors.BadSegment` if anything is missing."""
    for each in missing:
        raise BadSegment(
            f"the log ends at {each.offset}, but once reached {each.end_offset}: {each.how}. "
            "on_damage = 'refuse' stops here: restore the files, or open the store with "
            "on_damage='skip' to continue without the missing records",
            path=commitlog,
            offset=each.offset,
        )


def refuse_cut(missing: Sequence[MissingEnd], behind: Sequence[Tail]) -> None:
    """Refuse to set bytes aside that were durable: a plugin that changes bytes may be missing.

    A power cut leaves no such bytes, nor does a kill: they were synced as whole records.

    :param missing: the evidence that the log once reached further
    :param behind: the bytes behind the last whole record

    Raises :class:`~lakelog.errors.UnreadableEnd`.
    """
    for proof in missing:
        for tail in behind:
            if tail.offset < proof.end_offset:
                raise UnreadableEnd(
                    f"the bytes {tail.offset} to {min(tail.end_offset, proof.end_offset)} are no "
                    f"whole records, but were durable: {proof.how}, up to {proof.end_offset}. They "
                    "are not set aside: install and choose the plugin that wrote them, if one "
                    "changes bytes; restore the file, if it is damaged; or give "
                    "on_damage='cut-end' to end the log before them",
                    path=tail.path,
                    offset=tail.offset,
                )


def damage_refused(damage: Damage, commitlog: Path) -> BadSegment:
    """The error for damage followed by whole records."""
    return BadSegment(
        f"{damage.error}; {damage.end_offset - damage.offset} bytes are no whole record, but "
        "whole records follow. on_damage = 'refuse' stops here: open the store with "
        "on_damage='skip' to keep the whole records, or with mode='read'",
        path=damage.path or commitlog,
        offset=damage.offset,
    )


def no_log(claims: DurabilityClaims) -> StoreError:
    """The error for a store that had a log and has no segments."""
    reached = claims.checkpoint.confirm_offset
    evidence = f"the checkpoint confirms {reached} bytes of one" if reached else "there are queues"
    return StoreError(
        f"there is no segment, but {evidence} in {claims.directory.path}; check that the disk is "
        f"mounted and commitlog_path is right. To begin a new log, remove {CHECKPOINT_FILE}, "
        f"{CONSUMEQUEUE_DIR}/, index/ and {OWN_DIR}/queues.json of the store",
        path=claims.directory.commitlog,
    )


def keep_missing(
    files: FileSystem, path: Path, missing: Iterable[MissingEnd], next_offsets: Mapping[Queue, int]
) -> None:
    """Note durably, in ``lakelog/missing.json``, the missing records and used queue offsets.

    Does nothing if nothing is missing. Raises ``OSError``.
    """
    rows = [each._asdict() for each in missing]
    if not rows:
        return
    noted = read_own(files, path, MISSING_FILE, lambda found: list(found["missing"])) or []
    before = [row for row in noted if row not in rows]
    content = {"missing": before + rows, "next_offsets": by_topic(next_offsets)}
    write_own(files, path, MISSING_FILE, content, indent=1)


@attrs.frozen
class Cut:
    """The cut of a log by ``on_damage = "truncate"``.

    :ivar damage: the damage where the log is cut
    :ivar offsets: by run, the offsets of the proved records behind it
    """

    damage: Damage
    offsets: Sequence[NDArray[Any]]

    def with_reason(self, tail: Tail) -> Tail:
        """Return ``tail`` with the reason of the cut."""
        begin, end = tail.offset, tail.end_offset
        records = sum(int(((begin <= each) & (each < end)).sum()) for each in self.offsets)
        reason = (
            f"cut by on_damage='truncate' at damage {self.damage.offset}; "
            f"{records} whole, proved records in it"
        )
        return attrs.evolve(tail, reason=tail.reason.replace(BEHIND, reason, 1))


def cut_off(
    pending: Sequence[Blank | Damage],
    first: Piece,
    pieces: Iterable[Piece],
    found: QueueOffsetSurvey,
    proof: Proof,
) -> Cut:
    """Read the records behind the damage to report the loss; ``found`` is not changed.

    :param first: the first run of proved records behind ``pending``
    """
    damage = next(each for each in pending if isinstance(each, Damage))
    seen = proof.seen = deepcopy(found)
    offsets = []
    for each in chain((first,), pieces):
        if not isinstance(each, Blank | Damage):
            seen.count(each)
            offsets.append(each.physical_offsets)
    return Cut(damage, offsets)
