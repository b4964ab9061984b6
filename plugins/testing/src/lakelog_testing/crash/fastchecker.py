"""A short check of an image: recovery, queues and index run without a store around them.

The other work of :func:`lakelog.open` (threads, lock, ``abort``, segments to append to, a flush
strategy) costs more than recovery itself. Here ``examine`` and ``apply_plan`` of
:mod:`lakelog.recovery` work on the image. The dispatchers resume and receive the missing records,
and their files are compared with the log by columns. Omitted are further puts, reads of messages
through queues, and a clean stop.

Within one run, equal work is done once. Bytes at one place of the log are decoded once, a recovered
log is read once, and queues and index are completed once for the same log and other files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias
from unittest.mock import patch

import attrs

from lakelog.dispatch import DispatchCursor, NamedDispatcher, resume
from lakelog.errors import DispatchStopped, LakelogError
from lakelog.files.checkpoint import read_checkpoint
from lakelog.files.identity import read_identity
from lakelog.format.queue_offsets import Queue, Units
from lakelog.format.record_batch import Blank, Damage, Piece, RecordBatch, decode_run
from lakelog.hooks import Context, KeyIndex, QueueReader
from lakelog.log.damage import read_damage
from lakelog.log.scan import scan
from lakelog.log.sources import FileSource
from lakelog.log.store_directory import StoreDirectory
from lakelog.message import StoredMessage
from lakelog.recovery.apply import apply_plan
from lakelog.recovery.examine import examine
from lakelog.recovery.report import RecoveryPlan
from lakelog.store.strategies import make_dispatchers
from lakelog_queues.dispatching.consumequeues import ConsumeQueues
from lakelog_testing.crash.checker import Checker
from lakelog_testing.crash.ledger import Entry, Expected
from lakelog_testing.crash.opener import Opener, Tool
from lakelog_testing.crash.quarantined import LogBytes
from lakelog_testing.crash.verdicts import (
    Queues,
    Violation,
    alive,
    by_queue,
    check_bounds,
    check_claim,
    check_tail,
    check_units,
    checked_tombstones,
    compared,
    read_segments,
    same,
    since,
)

_LAST_MS: Final = (1 << 63) - 1
_Key: TypeAlias = "tuple[Any, ...]"


@attrs.frozen
class QueueContents:
    """The contents of queues, as columns.

    :ivar queues: bounds and units of each queue
    """

    queues: Mapping[Queue, tuple[tuple[int, int] | None, Units | None]]

    @classmethod
    def by(cls, reader: QueueReader, minimum: int) -> QueueContents:
        """Read all queues of a dispatcher."""

        def read(queue: Queue) -> tuple[tuple[int, int] | None, Units | None]:
            bounds = reader.bounds(queue, minimum)
            if bounds is None or bounds[0] >= bounds[1]:
                return bounds, None
            return bounds, reader.units(queue, bounds[0], bounds[1] - bounds[0])

        return cls({queue: read(queue) for queue in reader.queues()})

    def check(self, queues: Queues, gone: Mapping[str, bool], log: RecoveredLog, end: int) -> None:
        """Check that every record is at its place in its queue, and every unit points to a record.

        :param gone: topics with removed queues, and whether the removal had finished
        """
        for queue, messages in queues.items():
            bounds, units = self.queues.get(queue, (None, None))
            check_bounds(queue, bounds, messages)
            assert units is not None
            check_units(queue, units, messages, end)
        for queue, (_, units) in self.queues.items():
            if queue not in queues and units is not None:
                _check_empty(queue, units, log, end, must=gone.get(queue[0], True))


def _check_empty(queue: Queue, units: Units, log: RecoveredLog, end: int, *, must: bool) -> None:
    """Check an empty or removed queue; ``must`` is whether its removal had finished."""
    offsets = units.offsets.tolist()
    if offsets and max(offsets) >= end:
        raise Violation(f"{queue[0]}/{queue[1]} points behind the log")
    if must and any(each in log.found for each in offsets):
        raise Violation(
            f"{queue[0]}/{queue[1]} gives messages that the log has not, or were removed"
        )


@attrs.frozen(eq=False)
class RecoveredLog:
    """A recovered log.

    :ivar pieces: its pieces
    :ivar found: its messages, by offset
    :ivar equal: entries that were found equal to a message before, by offset
    :ivar held: final contents of dispatchers, by their other inputs
    """

    pieces: Sequence[Piece]
    found: Mapping[int, StoredMessage]
    equal: dict[int, Entry] = attrs.field(factory=dict)
    held: dict[Any, list[QueueContents]] = attrs.field(factory=dict)
    _rests: dict[int, list[Piece]] = attrs.field(factory=dict)

    def rest(self, start: int) -> list[Piece]:
        """The pieces from ``start`` on; cached with their computed columns."""
        if start not in self._rests:
            self._rests[start] = list(_behind(self.pieces, start))
        return self._rests[start]


@attrs.frozen
class CachedDecoder:
    """Decodes equal bytes at one place once.

    :ivar known: results by all inputs
    """

    known: dict[_Key, RecordBatch] = attrs.field(factory=dict)

    def __call__(
        self, data: memoryview, base_offset: int, /, *, verify: bool, sealed: bool
    ) -> RecordBatch:
        """The records at the start of ``data``."""
        key = (base_offset, verify, sealed, bytes(data))
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = decode_run(data, base_offset, verify=verify, sealed=sealed)
        return found


@attrs.frozen
class FastChecker:
    """Checks directories left by crashes; one instance for each run.

    :ivar logs: recovered logs, by all of their bytes
    """

    opener: Opener
    logs: dict[_Key, RecoveredLog] = attrs.field(factory=dict)
    decoder: CachedDecoder = attrs.field(factory=CachedDecoder)

    def begin_run(self) -> None:
        """Clear the caches for a new run."""
        self.logs.clear()
        self.decoder.known.clear()

    def check(
        self,
        path: Path,
        expected: Expected,
        rng: Random,
        before: LogBytes,
        tool: Tool | None = None,
    ) -> None:
        """Recover ``path`` and check it; raises :class:`Violation`.

        Arguments are those of :meth:`Checker.check`.
        """
        others = before.others()
        checker = Checker(self.opener)
        claimed, checkpoint = checker.claimed(path), read_checkpoint(self.opener.real, path)
        if tool is not None:
            checker.mended(path, tool)
        directory = self._directory(path)
        plan = self._recovered(directory)
        check_claim(claimed, plan.end_offset)
        segments = read_segments(directory.files, directory.commitlog)
        check_tail(segments, self.opener.settings.core.segment_size_bytes, plan.end_offset)
        log = self._log(directory, plan, segments)
        checker.check_times(path, checkpoint, plan.end_offset, log.found)
        kept = compared(log.found, since(plan.minimum, expected), log.equal)
        beside = None if tool is not None else (plan.checkpoint, tuple(segments), others)
        self._check_derived(directory, plan, log, expected, rng, beside)
        checker.check_asides(path, expected, kept, before, plan.minimum)

    def _directory(self, path: Path) -> StoreDirectory:
        return StoreDirectory.of(self.opener.real, path, self.opener.settings.core)

    def _recovered(self, directory: StoreDirectory) -> RecoveryPlan:
        core = self.opener.settings.core
        try:
            with patch("lakelog.log.scan.decode_run", self.decoder):
                plan = examine(directory, core)
            apply_plan(directory, plan, core.segment_size_bytes)
            read_identity(directory.files, directory.path)
        except Exception as error:
            raise Violation(f"it does not open: {type(error).__name__}: {error}") from error
        return plan

    def _log(
        self, directory: StoreDirectory, plan: RecoveryPlan, segments: Mapping[int, bytes]
    ) -> RecoveredLog:
        size, end = self.opener.settings.core.segment_size_bytes, plan.end_offset
        known_damage = read_damage(directory.files, directory.path)
        places = tuple(
            (each.offset, each.end_offset, each.head, each.unproven) for each in known_damage
        )
        bytes_of_it = tuple((start, data) for start, data in segments.items() if start < end)
        key = (plan.minimum, end, places, bytes_of_it)
        log = self.logs.get(key)
        if log is None:
            source = FileSource(directory.files, directory.commitlog, size, known_damage)
            log = self.logs[key] = _read(scan(source, plan.minimum, end))
        return log

    def _check_derived(
        self,
        directory: StoreDirectory,
        plan: RecoveryPlan,
        log: RecoveredLog,
        expected: Expected,
        rng: Random,
        beside: object | None,
    ) -> None:
        """Check queues and index against the log.

        :param beside: their other inputs; ``None`` if unknown
        """
        ends = checked_tombstones(directory.files, directory.path, expected)
        live = alive(log.found.values(), ends)
        held = None if beside is None else log.held.get(beside)
        if held is None:
            held = self._derived(directory, plan, log, live, rng)
            if beside is not None:
                log.held[beside] = held
        gone = {topic: must or topic in ends for topic, (_, must) in expected.deleted.items()}
        for each in held:
            each.check(by_queue(live), gone, log, plan.end_offset)

    def _derived(
        self,
        directory: StoreDirectory,
        plan: RecoveryPlan,
        log: RecoveredLog,
        live: Sequence[StoredMessage],
        rng: Random,
    ) -> list[QueueContents]:
        """Resume dispatchers, dispatch the records that they lack, and read all queues."""
        opener, path = self.opener, directory.path
        context = Context(path, opener.settings.core, directory.files)
        with ExitStack() as closing:
            try:
                made = make_dispatchers(opener.registry, opener.settings, context)
                for each in made:
                    closing.callback(_let_go, each)
                    _quiet(each)
                start = resume(made, plan.minimum, plan.end_offset)
            except Exception as error:
                raise Violation(f"it does not open: {type(error).__name__}: {error}") from error
            _dispatch(path, made, start, log, plan.end_offset)
            found = [each.dispatcher for each in made]
            for index in (each for each in found if isinstance(each, KeyIndex) and live):
                _check_keys(index, live, rng)
            readers = [each for each in found if isinstance(each, QueueReader)]
            return [QueueContents.by(each, plan.minimum) for each in readers]


def _quiet(each: NamedDispatcher) -> None:
    """Stop the syncing thread: the files are read once."""
    if isinstance(each.dispatcher, ConsumeQueues):
        each.dispatcher._flushing.stop()


def _let_go(each: NamedDispatcher) -> None:
    """Close files without the sync that queues make."""
    if isinstance(each.dispatcher, ConsumeQueues):
        for queue in each.dispatcher._queues.values():
            queue.close()
        each.dispatcher._maker.opened.close()
        return
    with suppress(LakelogError):
        each.dispatcher.close()


def _read(pieces: Iterator[Piece]) -> RecoveredLog:
    found, kept = {}, list(pieces)
    for piece in kept:
        if not isinstance(piece, Blank | Damage):
            for at in range(len(piece)):
                message = piece.message(at)
                found[message.physical_offset] = message
    return RecoveredLog(kept, found)


def _dispatch(
    path: Path, dispatchers: Sequence[NamedDispatcher], start: int, log: RecoveredLog, end: int
) -> None:
    if not dispatchers or start >= end:
        return
    dispatching = DispatchCursor(path, dispatchers, start)
    with suppress(DispatchStopped):
        dispatching.run(log.rest(start))
    if dispatching.offset < end:
        raise Violation("queues and index do not come to the end of the log")


def _behind(pieces: Sequence[Piece], start: int) -> Iterator[Piece]:
    for piece in pieces:
        if isinstance(piece, Blank | Damage):
            if (piece.offset if isinstance(piece, Blank) else piece.end_offset) >= start:
                yield piece
        elif piece.end_offset > start:
            first = int(piece.physical_offsets.searchsorted(start))
            yield piece[first:] if first else piece


def _check_keys(index: KeyIndex, live: Sequence[StoredMessage], rng: Random) -> None:
    """Check that a query for a key returns all its records; removed queues' may be among them."""
    message = rng.choice(live)
    if not message.keys:
        return
    topic, key = message.topic, rng.choice(message.keys)
    due = [each for each in live if each.topic == topic and key in each.keys]
    due_at = {each.physical_offset for each in due}
    try:
        got = [each for each in index.offsets(topic, key, 0, _LAST_MS) if each in due_at]
    except LakelogError as error:
        raise Violation(f"key {key!r} of {topic} gives {type(error).__name__}: {error}") from error
    same([*dict.fromkeys(got)][::-1], due, f"key {key!r} of {topic}")
