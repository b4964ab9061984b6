"""Compares what a recovery left with the image before it, the puts, and the guarantees.

Each check raises :class:`Violation`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TypeAlias

import attrs

from lakelog.errors import CorruptRecord, LakelogError
from lakelog.files.checkpoint import StoreCheckpoint
from lakelog.files.filesystem import FileSystem, read_file
from lakelog.files.segment_files import segment_files
from lakelog.format.layout import COMMITLOG_DIR, OWN_DIR, QUARANTINE_DIR, segment_name
from lakelog.format.properties import REPAIRED_TOPIC
from lakelog.format.queue_offsets import Queue, Units
from lakelog.format.record import checked_frame
from lakelog.message import StoredMessage
from lakelog.processes.queue_table import is_table
from lakelog.processes.shared_page import PAGE_FILE
from lakelog.recovery.filler import FILLER_TOPIC
from lakelog_queues.dispatching.tombstones import read_tombstones
from lakelog_testing.crash.ledger import Entry, Expected

Queues: TypeAlias = "dict[Queue, dict[int, StoredMessage]]"
"""The records in the log, by queue and queue offset."""
Bounds: TypeAlias = "tuple[int, int] | None"
QueueContents: TypeAlias = "Mapping[Queue, tuple[Bounds, Units | None]]"
"""Bounds and units of each queue."""


class Violation(Exception):
    """A violated guarantee, described by its text."""


# --- the log ---


def check_claim(claimed: int, end_offset: int) -> None:
    """Check that the checkpoint claims no more than the log holds."""
    if claimed > end_offset:
        raise Violation(f"the checkpoint claims {claimed} bytes, the log has {end_offset}")


def check_synced_time(claimed: StoreCheckpoint, found: Mapping[int, StoredMessage]) -> None:
    """Check that the durable store time of the checkpoint is not later than the log's messages.

    :param claimed: the checkpoint as the crash left it
    """
    last_ms = _last_ms(found)
    if found and claimed.physic_timestamp_ms > last_ms:
        raise Violation(
            f"the checkpoint claims messages up to {claimed.physic_timestamp_ms} ms as durable, "
            f"the log ends at {last_ms} ms"
        )


def check_lowered(
    checkpoint: StoreCheckpoint, end_offset: int, found: Mapping[int, StoredMessage]
) -> None:
    """Check that recovery left no claim that exceeds the log."""
    last_ms = _last_ms(found)
    times_ms = checkpoint.logics_timestamp_ms, checkpoint.index_timestamp_ms
    if checkpoint.confirm_offset > end_offset or (found and max(times_ms) > last_ms):
        raise Violation(
            f"after the recovery, {checkpoint} claims more than the log has: {end_offset} bytes, "
            f"{last_ms} ms"
        )


def _last_ms(found: Mapping[int, StoredMessage]) -> int:
    return max((each.store_timestamp_ms for each in found.values()), default=0)


def read_segments(files: FileSystem, commitlog: Path) -> dict[int, bytes]:
    """The content of the segment files, by their offsets."""
    found = segment_files(commitlog, files.list(commitlog))
    return {each.start_offset: read_file(files, each.path) or b"" for each in found}


def check_tail(segments: Mapping[int, bytes], size_bytes: int, end: int) -> None:
    """Check that the log ends in zeros: other bytes could return after another crash."""
    for start, data in segments.items():
        if start + size_bytes > end and data[max(end - start, 0) :].strip(b"\0"):
            raise Violation(f"{start:020d} is not zero behind the end of the log, {end}")


def since(minimum: int, expected: Expected) -> Expected:
    """The expectation for a log that starts at ``minimum``, if it may start there."""
    least, most = expected.minimum
    if not least <= minimum <= most:
        raise Violation(f"the log begins at {minimum}, not at {least} to {most}")
    if not minimum:
        return expected
    must = {offset: each for offset, each in expected.must.items() if offset >= minimum}
    return attrs.evolve(expected, must=must)


def compared(
    found: Mapping[int, StoredMessage], expected: Expected, equal: dict[int, Entry] | None = None
) -> dict[int, Entry]:
    """The entries of the found messages; raises if a required one is missing.

    :param equal: entries that these same messages were found equal to before, by offset
    """
    known: dict[int, Entry] = {} if equal is None else equal
    kept = {}
    for offset, message in found.items():
        entry = expected.may.get(offset)
        if entry is None or known.get(offset) is not entry:
            if message.topic == FILLER_TOPIC:  # written by a repair over damage
                continue
            entry = _entry_of(message, offset, entry, expected)
            known[offset] = entry
        kept[offset] = entry
    lost = sorted(expected.must.keys() - found.keys())
    if lost:
        raise Violation(
            f"{len(lost)} of {len(expected.must)} messages that were promised are lost, "
            f"at {lost[:5]}; {len(found)} were found"
        )
    return kept


def _entry_of(
    message: StoredMessage, offset: int, entry: Entry | None, expected: Expected
) -> Entry:
    if entry is None and bytes(message.body) in expected.unplaced:
        entry = expected.unplaced[bytes(message.body)].placed(message)
    if entry is None:
        raise Violation(
            f"a message at {offset} was never put there, or was gone: {_shown(message)}"
        )
    difference = entry.differs(message)
    if difference:
        raise Violation(f"the message at {offset} differs in {difference}: {_shown(message)}")
    return entry


def _shown(message: StoredMessage) -> str:
    return (
        f"{message.topic}/{message.queue_id} number {message.queue_offset}, {message.size} bytes, "
        f"body {bytes(message.body[:8]).hex()}"
    )


# --- records that a recovery took out ---


@attrs.frozen
class LogBytes:
    """The files of an image, before it is opened.

    :ivar files: contents by path from the root of the image
    :ivar store: name of the store's directory
    """

    files: Mapping[str, bytes]
    store: str
    segment_bytes: int

    def whole(self, entries: Mapping[int, Entry], but: Container[int] = ()) -> dict[int, bytes]:
        """The bytes of the records that are whole at their places, by offset."""
        found = {
            offset: self._record(offset, entry.end_offset)
            for offset, entry in entries.items()
            if offset not in but
        }
        return {offset: data for offset, data in found.items() if data is not None}

    def others(self) -> tuple[tuple[str, bytes], ...]:
        """All files except the log and the files shared by processes, which are created anew."""
        log = f"{self.store}/{COMMITLOG_DIR}/"
        return tuple(
            each
            for each in self.files.items()
            if not each[0].startswith(log) and not self._is_shared(each[0])
        )

    def _is_shared(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        return folder == f"{self.store}/{OWN_DIR}" and (name == PAGE_FILE or is_table(name))

    def _record(self, offset: int, end_offset: int) -> bytes | None:
        start = offset % self.segment_bytes
        name = segment_name(offset - start)
        segment = self.files.get(f"{self.store}/{COMMITLOG_DIR}/{name}", b"")
        data = segment[start : start + end_offset - offset]
        try:
            frame = checked_frame(memoryview(data), 0, len(data), offset, sealed=True)
        except CorruptRecord:
            return None
        if frame.topic == REPAIRED_TOPIC:
            return None  # written by a repair
        return data if frame.size == len(data) else None


def check_asides(files: FileSystem, path: Path, removed: Mapping[int, bytes]) -> None:
    """Check that whole records that a recovery took out of the log are in quarantine.

    :param removed: the bytes of these records, by offset
    """
    if not removed:
        return
    folder = path / OWN_DIR / QUARANTINE_DIR
    kept = [
        (folder / name).read_bytes() for name, _ in files.list(folder) if name.endswith(".bytes")
    ]
    lost = sorted(at for at, data in removed.items() if not any(data in each for each in kept))
    if lost:
        raise Violation(f"whole records at {lost[:5]} were taken out, and are not in quarantine")


# --- queues ---


def checked_tombstones(files: FileSystem, path: Path, expected: Expected) -> dict[str, int]:
    """The tombstones; raises if one was never requested, or a required one is missing."""
    found = read_tombstones(files, path)
    for topic, end in found.items():
        if end not in expected.deleted.get(topic, (frozenset(), False))[0]:
            raise Violation(f"a tombstone of {topic!r} up to {end} without a request")
    for topic, (_, must) in expected.deleted.items():
        if must and topic not in found:
            raise Violation(f"the queues of {topic!r} were removed, and its tombstone is lost")
    return found


def by_queue(live: Iterable[StoredMessage]) -> Queues:
    """The records by queue and queue offset; raises if one is duplicated."""
    queues: Queues = {}
    for each in live:
        queue = queues.setdefault((each.topic, each.queue_id), {})
        if each.queue_offset in queue:
            raise Violation(f"number {each.queue_offset} of {each.topic}/{each.queue_id} is twice")
        queue[each.queue_offset] = each
    return queues


def contents(
    queues: Iterable[Queue],
    bounds: Callable[[Queue], Bounds],
    units: Callable[[Queue, int, int], Units],
) -> QueueContents:
    """Read all queues.

    :param units: the units of a queue from a queue offset on, and their number
    """
    found: dict[Queue, tuple[Bounds, Units | None]] = {}
    for queue in queues:
        ends = bounds(queue)
        found[queue] = ends, None
        if ends is not None and ends[0] < ends[1]:
            found[queue] = ends, units(queue, ends[0], ends[1] - ends[0])
    return found


def check_queues(
    held: QueueContents,
    queues: Queues,
    gone: Mapping[str, bool],
    found: Container[int],
    end: int,
) -> None:
    """Check that every record is at its place in its queue, and every unit points to a record.

    :param gone: topics with removed queues, and whether the removal had finished
    :param found: the offsets of all messages in the log
    :param end: the end of the log
    """
    for queue, messages in queues.items():
        bounds, units = held.get(queue, (None, None))
        first, last = min(messages), max(messages)
        if bounds is None or units is None or bounds[0] > first or bounds[1] <= last:
            raise Violation(
                f"{queue[0]}/{queue[1]} goes over {bounds}, its records from {first} to {last}"
            )
        _check_units(queue, units, messages, end)
    for queue, (_, units) in held.items():
        if queue not in queues and units is not None:
            _check_empty(queue, units, found, end, must=gone.get(queue[0], True))


def _check_units(
    queue: Queue, units: Units, messages: Mapping[int, StoredMessage], end: int
) -> None:
    """Check that every record has its unit, and no unit points beyond ``end``."""
    name = f"{queue[0]}/{queue[1]}"
    places = zip(units.offsets.tolist(), units.sizes.tolist(), strict=True)
    at = dict(zip(units.queue_offsets.tolist(), places, strict=True))
    for number, message in messages.items():
        if at.get(number) != (message.physical_offset, message.size):
            raise Violation(
                f"number {number} of {name} should point to {message.physical_offset} "
                f"(+{message.size}) and points to {at.get(number)}"
            )
    for number, (offset, size) in at.items():
        if number not in messages and size > 0 and offset + size > end:
            raise Violation(f"number {number} of {name} points behind the log, to {offset}")


def _check_empty(
    queue: Queue, units: Units, found: Container[int], end: int, *, must: bool
) -> None:
    """Check an empty or removed queue; ``must`` is whether its removal had finished."""
    name, offsets = f"{queue[0]}/{queue[1]}", units.offsets.tolist()
    if offsets and max(offsets) >= end:
        raise Violation(f"{name} points behind the log")
    if must and any(each in found for each in offsets):
        raise Violation(f"{name} gives messages that the log has not, or were removed")


def check_a_key(
    live: Sequence[StoredMessage],
    rng: Random,
    query: Callable[[str, str], Iterable[int]],
    *,
    has_hashes_only: bool = False,
) -> None:
    """Check that a query for the key of some message returns all its records, newest first.

    :param query: the offsets for topic and key; those of removed queues may be among them
    :param has_hashes_only: whether those of keys with an equal hash may be among them, too
    """
    message = rng.choice(live)
    if not message.keys:
        return
    topic, key = message.topic, rng.choice(message.keys)
    due = [each for each in live if each.topic == topic and key in each.keys]
    known = {each.physical_offset for each in (due if has_hashes_only else live)}
    try:
        got = [each for each in query(topic, key) if each in known]
    except LakelogError as error:
        raise Violation(f"key {key!r} of {topic} gives {type(error).__name__}: {error}") from error
    same(got[::-1], due, f"key {key!r} of {topic}")


def same(got: Sequence[int], due: Iterable[StoredMessage], what: str) -> None:
    """Check that the returned offsets are those expected."""
    expected = [each.physical_offset for each in due]
    if got != expected:
        raise Violation(f"{what} returns the message at {got} instead of that at {expected}")
