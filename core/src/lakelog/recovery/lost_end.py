"""Records lost at the end of a log: evidence of them, and the cut of ``on_damage="truncate"``.

A power cut removes bytes that were never synced, while their queue units may remain; that is no
loss. So after an unclean stop only the checkpoint counts, and only if lakelog wrote it. RocketMQ
confirms unsynced bytes, and keeps that value when it cuts a log. After a clean stop of lakelog,
log and queues agreed, so the checkpoint, the list of queue ends and the queues all count.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog.errors import BadSegment, StoreError
from lakelog.files.checkpoint import StoreCheckpoint
from lakelog.files.filesystem import FileSystem, read_file
from lakelog.files.identity import read_own, write_own
from lakelog.files.queue_ends import DurableQueueEnds, QueueEnd, by_topic, read_kept
from lakelog.format.layout import CHECKPOINT_FILE, CONSUMEQUEUE_DIR, OWN_DIR
from lakelog.format.queue_offsets import Queue
from lakelog.format.queue_survey import QueueOffsetSurvey
from lakelog.format.record_batch import Blank, Damage, Piece
from lakelog.log.store_directory import StoreDirectory
from lakelog.processes.ownership import owner_pid
from lakelog.processes.shared_page import MAGIC, OWNER_PID, page_path
from lakelog.recovery.quarantine import BEHIND, Tail
from lakelog.recovery.report import MissingEnd

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog.recovery.proof import Proof


MISSING_FILE: Final = "missing.json"
_LOG: Final = logging.getLogger("lakelog")
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
