"""Compares the contents of a recovered store with the recorded puts and guarantees.

Each check raises :class:`Violation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import attrs

from lakelog.files.checkpoint import StoreCheckpoint
from lakelog.files.filesystem import FileSystem, read_file
from lakelog.files.segment_files import segment_files
from lakelog.message import StoredMessage
from lakelog.recovery.filler import FILLER_TOPIC
from lakelog_queues.dispatching.tombstones import read_tombstones
from lakelog_testing.crash.ledger import Entry, Expected

if TYPE_CHECKING:
    from pathlib import Path

    from lakelog.format.queue_offsets import Queue, Units

Queues = dict["Queue", dict[int, StoredMessage]]
"""The records in the log, by queue and queue offset."""


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


def alive(found: Iterable[StoredMessage], ends: Mapping[str, int]) -> list[StoredMessage]:
    """The messages that are not covered by tombstones."""
    return [each for each in found if each.physical_offset >= ends.get(each.topic, 0)]


def by_queue(live: Iterable[StoredMessage]) -> Queues:
    """The records by queue and queue offset; raises if one is duplicated."""
    queues: Queues = {}
    for each in live:
        queue = queues.setdefault((each.topic, each.queue_id), {})
        if each.queue_offset in queue:
            raise Violation(f"number {each.queue_offset} of {each.topic}/{each.queue_id} is twice")
        queue[each.queue_offset] = each
    return queues


def check_bounds(
    queue: Queue, bounds: tuple[int, int] | None, messages: Mapping[int, StoredMessage]
) -> tuple[int, int]:
    """Check that a queue covers at least its first to its last record."""
    first, last = min(messages), max(messages)
    if bounds is None or bounds[0] > first or bounds[1] <= last:
        raise Violation(
            f"{queue[0]}/{queue[1]} goes over {bounds}, its records from {first} to {last}"
        )
    return bounds


def check_units(
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


def same(got: Iterable[int], due: Iterable[StoredMessage], what: str) -> None:
    """Check that the returned offsets are those expected."""
    one, other = list(got), [each.physical_offset for each in due]
    if one != other:
        raise Violation(f"{what} returns the message at {one} instead of that at {other}")
