"""Opens the state that a crash left, which recovers it, and checks every guarantee.

What the recovery left is compared with the image before it, the puts, and the guarantees. Each
check raises :class:`Violation`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final, TypeAlias

import attrs

from lakelog import Store
from lakelog.errors import CorruptRecord, LakelogError, PluginError
from lakelog.files.checkpoint import StoreCheckpoint, read_checkpoint
from lakelog.files.filesystem import FileSystem, read_file
from lakelog.format import layout, properties, record
from lakelog.format.queue_offsets import Queue, Units
from lakelog.log import sources, store_directory
from lakelog.message import Message, StoredMessage
from lakelog.recovery.filler import FILLER_TOPIC
from lakelog_queues.dispatching.tombstones import read_tombstones
from lakelog_testing.crash.ledger import Entry, Expected
from lakelog_testing.crash.opener import Opener, Tool, owned_by

_NEW: Final = b"after the crash"
_PATIENCE_MS: Final = 60_000
"""Time limit for work of a thread, in ms: a busy machine may stall for seconds."""
Queues: TypeAlias = "dict[Queue, dict[int, StoredMessage]]"
"""The records in the log, by queue and queue offset."""


@attrs.frozen
class Checker:
    """Checks directories left by crashes; all methods raise :class:`Violation`."""

    opener: Opener

    def check(
        self,
        path: Path,
        expected: Expected,
        rng: Random,
        before: LogBytes,
        tool: Tool | None = None,
    ) -> None:
        """Open ``path`` like :func:`lakelog.open`, check everything, put again, close.

        :param before: the log as the crash left it
        :param tool: a tool to run on the store first
        """
        claimed, checkpoint = self._claimed(path), read_checkpoint(self.opener.real, path)
        if tool is not None:
            self.mended(path, tool)
        try:
            store = self.opener.open(path)
        except Exception as error:
            raise Violation(f"it does not open: {type(error).__name__}: {error}") from error
        try:
            if claimed > (end := store.max_offset):
                raise Violation(f"the checkpoint claims {claimed} bytes, the log has {end}")
            directory = owned_by(store).directory
            check_tail(directory, store)
            found = _scanned(store)
            if not self._truncates:
                check_synced_time(checkpoint, found)
            check_lowered(read_checkpoint(self.opener.real, path), store.max_offset, found)
            kept = self.examine(store, expected, rng)
            gone = {at: data for at, data in expected.aside.items() if at not in kept}
            gone.update(before.whole(expected.may, kept))
            removed = {at: data for at, data in gone.items() if at >= store.min_offset}
            check_asides(self.opener.real, path, removed)
            _puts_again(store, rng)
        finally:
            with suppress(LakelogError):
                store.close()

    @property
    def _truncates(self) -> bool:
        return self.opener.settings.core.on_damage == "truncate"

    def _claimed(self, path: Path) -> int:
        """The end of the log claimed by the checkpoint, without parts that the settings cut.

        A repair keeps records after damage, whatever the settings say. If the settings truncate the
        log there, the next open does so, regardless of the checkpoint.
        """
        real = self.opener.real
        ends = [read_checkpoint(real, path).confirm_offset]
        if self._truncates:
            ends += [each.offset for each in sources.read_damage(real, path)]
        return min(ends)

    def mended(self, path: Path, tool: Tool, files: FileSystem | None = None) -> None:
        """Run a tool on the state after a crash; it must leave a clean stop."""
        name = getattr(tool, "__name__", repr(tool))
        try:
            was_there = self.opener.mend(path, tool, files)
        except PluginError:
            raise
        except Exception as error:
            raise Violation(f"{name} fails: {type(error).__name__}: {error}") from error
        if was_there and (path / layout.ABORT_FILE).exists():
            raise Violation(f"{name} left no clean stop")

    def examine(self, store: Store, expected: Expected, rng: Random) -> dict[int, Entry]:
        """Check log, queues and index of an open store, after everything is dispatched.

        :returns: the entries of its messages, by offset
        """
        found = _scanned(store)
        kept = compared(found, since(store.min_offset, expected))
        if not store.wait_dispatched():
            raise Violation("queues and index do not come to the end of the log")
        directory = owned_by(store).directory
        ends = checked_tombstones(directory.files, directory.path, expected)
        live = [each for each in found.values() if each.physical_offset >= ends.get(each.topic, 0)]
        gone = {topic: must or topic in ends for topic, (_, must) in expected.deleted.items()}
        queues = by_queue(live)
        check_queues(store, queues, gone, found)
        if queues:
            check_get(store, *rng.choice(list(queues.items())))
        if self.opener.has_key_index and live:
            check_a_key(store, live, found, rng)
        return kept


def _scanned(store: Store) -> dict[int, StoredMessage]:
    """All messages; what is missing where the log is damaged is found anyway."""
    return {each.physical_offset: each for each in store.scan(on_damage=lambda _: None)}


def _puts_again(store: Store, rng: Random) -> None:
    message = Message("orders", _NEW + rng.randbytes(8), queue_id=rng.randint(0, 1))
    try:
        result = store.put(message)
        if not store.wait_dispatched(result.end_offset, _PATIENCE_MS):
            raise Violation(f"a message put after the crash is not dispatched: {result}")
        got = store.get("orders", result.queue_id, result.queue_offset, 1).messages
    except LakelogError as error:
        raise Violation(f"it takes no puts: {type(error).__name__}: {error}") from error
    if [bytes(each.body) for each in got] != [message.body]:
        raise Violation(f"a message put after the crash is not found at {result}")


class Violation(Exception):
    """A violated guarantee, described by its text."""


# --- the log ---


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


def check_tail(directory: store_directory.StoreDirectory, store: Store) -> None:
    """Check that the log ends in zeros: other bytes could return after another crash."""
    end, size_bytes = store.max_offset, store.settings.core.segment_size_bytes
    for each in directory.segments():
        start = each.start_offset
        if start + size_bytes > end:
            data = read_file(directory.files, each.path) or b""
            if data[max(end - start, 0) :].strip(b"\0"):
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


def compared(found: Mapping[int, StoredMessage], expected: Expected) -> dict[int, Entry]:
    """The entries of the found messages; raises if a required one is missing."""
    kept = {
        offset: _entry_of(message, offset, expected)
        for offset, message in found.items()
        if message.topic != FILLER_TOPIC  # written by a repair over damage
    }
    lost = sorted(expected.must.keys() - found.keys())
    if lost:
        raise Violation(
            f"{len(lost)} of {len(expected.must)} messages that were promised are lost, "
            f"at {lost[:5]}; {len(found)} were found"
        )
    return kept


def _entry_of(message: StoredMessage, offset: int, expected: Expected) -> Entry:
    entry = expected.may.get(offset)
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
    :ivar segment_bytes: length of its segments
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

    def _record(self, offset: int, end_offset: int) -> bytes | None:
        start = offset % self.segment_bytes
        name = layout.segment_name(offset - start)
        segment = self.files.get(f"{self.store}/{layout.COMMITLOG_DIR}/{name}", b"")
        data = segment[start : start + end_offset - offset]
        try:
            frame = record.checked_frame(memoryview(data), 0, len(data), offset, sealed=True)
        except CorruptRecord:
            return None
        if frame.topic == properties.REPAIRED_TOPIC:
            return None  # written by a repair
        return data if frame.size == len(data) else None


def check_asides(files: FileSystem, path: Path, removed: Mapping[int, bytes]) -> None:
    """Check that whole records that a recovery took out of the log are in quarantine.

    :param removed: the bytes of these records, by offset
    """
    if not removed:
        return
    folder = path / layout.OWN_DIR / layout.QUARANTINE_DIR
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


def check_queues(
    store: Store, queues: Queues, gone: Mapping[str, bool], found: Container[int]
) -> None:
    """Check that every record is at its place in its queue, and every unit points to a record.

    :param gone: topics with removed queues, and whether the removal had finished
    :param found: the offsets of all messages in the log
    """
    for queue, messages in queues.items():
        bounds, first, last = store.queue_bounds(*queue), min(messages), max(messages)
        if bounds is None or bounds[0] > first or bounds[1] <= last:
            raise Violation(
                f"{queue[0]}/{queue[1]} goes over {bounds}, its records from {first} to {last}"
            )
        units = store.queue_units(*queue, bounds[0], bounds[1] - bounds[0])
        _check_units(queue, units, messages, store.max_offset)
    for info in store.queues():
        if (info.topic, info.queue_id) not in queues:
            _check_empty(store, info.topic, info.queue_id, found, gone.get(info.topic, True))


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
    store: Store, topic: str, queue_id: int, found: Container[int], must: bool
) -> None:
    """Check an empty or removed queue; ``must`` is whether its removal had finished."""
    bounds = store.queue_bounds(topic, queue_id)
    if bounds is None or bounds[0] >= bounds[1]:
        return
    offsets = store.queue_units(topic, queue_id, bounds[0], bounds[1] - bounds[0]).offsets.tolist()
    if offsets and max(offsets) >= store.max_offset:
        raise Violation(f"{topic}/{queue_id} points behind the log")
    is_read = bool(store.get(topic, queue_id, bounds[0], 100).messages)
    if must and (is_read or any(each in found for each in offsets)):
        raise Violation(f"{topic}/{queue_id} gives messages that the log has not, or were removed")


def check_get(store: Store, queue: Queue, messages: Mapping[int, StoredMessage]) -> None:
    """Check that a queue can be read from its first to its last record."""
    got: list[int] = []
    at, end = min(messages), max(messages) + 1
    while at < end:
        result = store.get(*queue, at, 1000)
        if result.next_offset <= at:
            raise Violation(f"{queue[0]}/{queue[1]} cannot be read on from {at}: {result.status}")
        got += (each.physical_offset for each in result.messages)
        at = result.next_offset
    same(got, [messages[number] for number in sorted(messages)], f"{queue[0]}/{queue[1]}")


def check_a_key(
    store: Store, live: Sequence[StoredMessage], found: Container[int], rng: Random
) -> None:
    """Check that a query for a key returns all its records; removed queues' may be among them.

    :param live: the messages in queues; the key is that of one of them
    """
    message = rng.choice(live)
    if not message.keys:
        return
    topic, key = message.topic, rng.choice(message.keys)
    what = f"key {key!r} of {topic}"
    try:
        got = [each.physical_offset for each in store.query(topic, key, max_messages=10_000)]
    except LakelogError as error:
        raise Violation(f"{what} gives {type(error).__name__}: {error}") from error
    if any(each not in found for each in got):
        raise Violation(f"{what} returns a message that is not in the log")
    there = {each.physical_offset for each in live}
    due = [each for each in live if each.topic == topic and key in each.keys]
    same([each for each in got[::-1] if each in there], due, what)


def same(got: Sequence[int], due: Iterable[StoredMessage], what: str) -> None:
    """Check that the returned offsets are those expected."""
    expected = [each.physical_offset for each in due]
    if got != expected:
        raise Violation(f"{what} returns the message at {got} instead of that at {expected}")
