"""Checks the directories that crashes left: recovery, and every guarantee after it.

There are two ways. The whole one opens the store like :func:`lakelog.open`, reads it, puts again,
and closes it. The short one does without the rest of an open (threads, lock, ``abort``, segments to
append to, a flush strategy), which costs more than recovery itself: ``examine`` and ``apply_plan``
of :mod:`lakelog.recovery` work on the directory, the dispatchers resume and receive the records
that they lack, and their files are compared with the log by columns.

Within one run, the short way does equal work once. Bytes at one place of the log are decoded once,
a recovered log is read once, and queues and index are completed once for the same log and other
files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias
from unittest.mock import patch

import attrs

from lakelog import Store
from lakelog.dispatch import DispatchCursor, NamedDispatcher, resume
from lakelog.errors import DispatchStopped, LakelogError, PluginError
from lakelog.files.checkpoint import StoreCheckpoint, read_checkpoint
from lakelog.files.filesystem import FileSystem
from lakelog.files.identity import read_identity
from lakelog.format.layout import ABORT_FILE
from lakelog.format.record_batch import Blank, Damage, Piece, RecordBatch, decode_run
from lakelog.hooks import Context, KeyIndex, QueueReader
from lakelog.log.damage import read_damage
from lakelog.log.scan import scan
from lakelog.log.sources import FileSource
from lakelog.log.store_directory import StoreDirectory
from lakelog.message import Message, StoredMessage
from lakelog.recovery.apply import apply_plan
from lakelog.recovery.examine import RecoveryPlan, examine
from lakelog.store.strategies import make_dispatchers
from lakelog_queues.dispatching.consumequeues import ConsumeQueues
from lakelog_testing.crash import verdicts
from lakelog_testing.crash.ledger import Entry, Expected
from lakelog_testing.crash.opener import Opener, Tool, owned_by
from lakelog_testing.crash.verdicts import LogBytes, QueueContents, Violation

_NEW: Final = b"after the crash"
_PATIENCE_MS: Final = 60_000
"""Time limit for work of a thread, in ms: a busy machine may stall for seconds."""
_LAST_MS: Final = (1 << 63) - 1
_Key: TypeAlias = "tuple[Any, ...]"
Found: TypeAlias = "Mapping[int, StoredMessage]"
"""The messages of a log, by offset."""


@attrs.frozen
class _Claims:
    """What the checkpoint said before the recovery; ``end`` is that of the log."""

    end: int
    checkpoint: StoreCheckpoint


@attrs.frozen(eq=False)
class RecoveredLog:
    """A recovered log.

    :ivar equal: entries that were found equal to a message before, by offset
    :ivar held: final contents of dispatchers, by their other inputs
    """

    pieces: Sequence[Piece]
    found: Found
    equal: dict[int, Entry] = attrs.field(factory=dict)
    held: dict[Any, list[QueueContents]] = attrs.field(factory=dict)
    _rests: dict[int, list[Piece]] = attrs.field(factory=dict)

    @classmethod
    def read(cls, pieces: Iterable[Piece]) -> RecoveredLog:
        """Read all messages."""
        kept = list(pieces)
        runs = [each for each in kept if not isinstance(each, Blank | Damage)]
        messages = [run.message(at) for run in runs for at in range(len(run))]
        return cls(kept, {each.physical_offset: each for each in messages})

    def rest(self, start: int) -> list[Piece]:
        """The pieces from ``start`` on; cached with their computed columns."""
        if start not in self._rests:
            self._rests[start] = list(_behind(self.pieces, start))
        return self._rests[start]


def _behind(pieces: Sequence[Piece], start: int) -> Iterator[Piece]:
    for piece in pieces:
        if isinstance(piece, Blank | Damage):
            if (piece.offset if isinstance(piece, Blank) else piece.end_offset) >= start:
                yield piece
        elif piece.end_offset > start:
            first = int(piece.physical_offsets.searchsorted(start))
            yield piece[first:] if first else piece


@attrs.frozen
class Checker:
    """Checks directories left by crashes; all methods raise :class:`Violation`.

    :ivar logs: recovered logs, by all of their bytes
    :ivar decoded: records, by their bytes and how they were decoded
    """

    opener: Opener
    logs: dict[_Key, RecoveredLog] = attrs.field(factory=dict)
    decoded: dict[_Key, RecordBatch] = attrs.field(factory=dict)

    def begin_run(self) -> None:
        """Forget what was found in a run."""
        self.logs.clear()
        self.decoded.clear()

    def check_whole(
        self,
        path: Path,
        expected: Expected,
        rng: Random,
        before: LogBytes,
        tool: Tool | None = None,
    ) -> None:
        """Open ``path``, check everything, put again, close.

        :param before: the files as the crash left them
        :param tool: a tool to run on the store first
        """
        claims = self._claims(path, tool)
        with _opening():
            store = self.opener.open(path)
        try:
            directory = owned_by(store).directory
            segments = verdicts.read_segments(directory.files, directory.commitlog)
            self._check_log(path, claims, segments, store.max_offset, _scanned(store))
            kept = self.examine(store, expected, rng)
            self._check_asides(path, expected, kept, before, store.min_offset)
            _puts_again(store, rng)
        finally:
            with suppress(LakelogError):
                store.close()

    def check_short(
        self,
        path: Path,
        expected: Expected,
        rng: Random,
        before: LogBytes,
        tool: Tool | None = None,
    ) -> None:
        """Recover ``path`` without opening it, and check it; arguments as for the whole way."""
        claims = self._claims(path, tool)
        directory = StoreDirectory.of(self.opener.real, path, self.opener.settings.core)
        with _opening():
            plan = self._recovered(directory)
        segments = verdicts.read_segments(directory.files, directory.commitlog)
        log = self._log(directory, plan, segments)
        self._check_log(path, claims, segments, plan.end_offset, log.found)
        kept = verdicts.compared(log.found, verdicts.since(plan.minimum, expected), log.equal)
        inputs = None if tool else (plan.checkpoint, tuple(segments), before.others())
        self._check_derived(directory, plan, log, expected, rng, inputs)
        self._check_asides(path, expected, kept, before, plan.minimum)

    def mended(self, path: Path, tool: Tool, files: FileSystem | None = None) -> None:
        """Run a tool on the state after a crash; it must leave a clean stop."""
        name = getattr(tool, "__name__", repr(tool))
        try:
            was_there = self.opener.mend(path, tool, files)
        except PluginError:
            raise
        except Exception as error:
            raise Violation(f"{name} fails: {type(error).__name__}: {error}") from error
        if was_there and (path / ABORT_FILE).exists():
            raise Violation(f"{name} left no clean stop")

    def examine(self, store: Store, expected: Expected, rng: Random) -> dict[int, Entry]:
        """Check an open store; returns its messages by offset."""
        found = _scanned(store)
        kept = verdicts.compared(found, verdicts.since(store.min_offset, expected))
        if not store.wait_dispatched():
            raise Violation("queues and index do not come to the end of the log")
        held = verdicts.contents(
            [(each.topic, each.queue_id) for each in store.queues()],
            lambda queue: store.queue_bounds(*queue),
            lambda queue, start, count: store.queue_units(*queue, start, count),
        )
        directory = owned_by(store).directory
        live, gone = _live(directory, found, expected)
        queues = verdicts.by_queue(live)
        verdicts.check_queues(held, queues, gone, found, store.max_offset)
        if queues:
            _check_get(store, *rng.choice(list(queues.items())))
        if self.opener.has_key_index and live:
            verdicts.check_a_key(live, rng, partial(_queried, store, found))
        return kept

    # --- the log ---

    def _claims(self, path: Path, tool: Tool | None) -> _Claims:
        """What the checkpoint claims; then run the tool.

        A repair keeps records after damage, whatever the settings say. If the settings truncate the
        log there, the next open does so, regardless of the checkpoint.
        """
        real = self.opener.real
        checkpoint = read_checkpoint(real, path)
        ends = [checkpoint.confirm_offset]
        if self._truncates:
            ends += [each.offset for each in read_damage(real, path)]
        if tool is not None:
            self.mended(path, tool)
        return _Claims(min(ends), checkpoint)

    @property
    def _truncates(self) -> bool:
        return self.opener.settings.core.on_damage == "truncate"

    def _check_log(
        self,
        path: Path,
        claims: _Claims,
        segments: Mapping[int, bytes],
        end_offset: int,
        found: Found,
    ) -> None:
        """Check end and times of the log against the checkpoint before, and the one now."""
        verdicts.check_claim(claims.end, end_offset)
        verdicts.check_tail(segments, self.opener.settings.core.segment_size_bytes, end_offset)
        if not self._truncates:
            verdicts.check_synced_time(claims.checkpoint, found)
        verdicts.check_lowered(read_checkpoint(self.opener.real, path), end_offset, found)

    def _check_asides(
        self,
        path: Path,
        expected: Expected,
        kept: Mapping[int, Entry],
        before: LogBytes,
        minimum: int,
    ) -> None:
        gone = {at: data for at, data in expected.aside.items() if at not in kept}
        gone.update(before.whole(expected.may, kept))
        gone = {at: data for at, data in gone.items() if at >= minimum}
        verdicts.check_asides(self.opener.real, path, gone)

    # --- the short way ---

    def _recovered(self, directory: StoreDirectory) -> RecoveryPlan:
        core = self.opener.settings.core
        with patch("lakelog.log.scan.decode_run", self._decode):
            plan = examine(directory, core)
        apply_plan(directory, plan, core.segment_size_bytes)
        read_identity(directory.files, directory.path)
        return plan

    def _decode(
        self, data: memoryview, base_offset: int, /, *, verify: bool, sealed: bool
    ) -> RecordBatch:
        """The records at the start of ``data``."""
        key = (base_offset, verify, sealed, bytes(data))
        if key not in self.decoded:
            self.decoded[key] = decode_run(data, base_offset, verify=verify, sealed=sealed)
        return self.decoded[key]

    def _log(
        self, directory: StoreDirectory, plan: RecoveryPlan, segments: Mapping[int, bytes]
    ) -> RecoveredLog:
        size, end = self.opener.settings.core.segment_size_bytes, plan.end_offset
        known_damage = read_damage(directory.files, directory.path)
        places = tuple(
            (each.offset, each.end_offset, each.head, each.unproven) for each in known_damage
        )
        key = (plan.minimum, end, places, tuple(each for each in segments.items() if each[0] < end))
        if key not in self.logs:
            source = FileSource(directory.files, directory.commitlog, size, known_damage)
            self.logs[key] = RecoveredLog.read(scan(source, plan.minimum, end))
        return self.logs[key]

    def _check_derived(
        self,
        directory: StoreDirectory,
        plan: RecoveryPlan,
        log: RecoveredLog,
        expected: Expected,
        rng: Random,
        inputs: object | None,
    ) -> None:
        """Check queues and index against the log.

        :param inputs: what they depend on beside the log; ``None`` if unknown
        """
        live, gone = _live(directory, log.found, expected)
        held = log.held.get(inputs)
        if held is None:
            held = self._derived(directory, plan, log, live, rng)
            if inputs is not None:
                log.held[inputs] = held
        for each in held:
            verdicts.check_queues(each, verdicts.by_queue(live), gone, log.found, plan.end_offset)

    def _derived(
        self,
        directory: StoreDirectory,
        plan: RecoveryPlan,
        log: RecoveredLog,
        live: Sequence[StoredMessage],
        rng: Random,
    ) -> list[QueueContents]:
        """Resume dispatchers, dispatch the records that they lack, and read all queues."""
        opener, path, minimum = self.opener, directory.path, plan.minimum
        context = Context(path, opener.settings.core, directory.files)
        with ExitStack() as closing:
            with _opening():
                made = make_dispatchers(opener.registry, opener.settings, context)
                for each in made:
                    closing.callback(_let_go, each)
                    if isinstance(each.dispatcher, ConsumeQueues):
                        each.dispatcher._flushing.stop()  # the files are read once
                start = resume(made, minimum, plan.end_offset)
            _dispatch(path, made, start, log, plan.end_offset)
            found = [each.dispatcher for each in made]
            for index in (each for each in found if isinstance(each, KeyIndex) and live):
                query = partial(_offsets, index)
                verdicts.check_a_key(live, rng, query, has_hashes_only=True)
            readers = [each for each in found if isinstance(each, QueueReader)]
            return [
                verdicts.contents(each.queues(), partial(each.bounds, minimum=minimum), each.units)
                for each in readers
            ]


@contextmanager
def _opening() -> Iterator[None]:
    """A store must open: every exception is a violation."""
    try:
        yield
    except Exception as error:
        raise Violation(f"it does not open: {type(error).__name__}: {error}") from error


def _live(
    directory: StoreDirectory, found: Found, expected: Expected
) -> tuple[list[StoredMessage], dict[str, bool]]:
    """The messages that are in queues; and the topics removed, and whether that had finished."""
    ends = verdicts.checked_tombstones(directory.files, directory.path, expected)
    gone = {topic: must or topic in ends for topic, (_, must) in expected.deleted.items()}
    live = [each for each in found.values() if each.physical_offset >= ends.get(each.topic, 0)]
    return live, gone


def _offsets(index: KeyIndex, topic: str, key: str) -> Iterable[int]:
    return dict.fromkeys(index.offsets(topic, key, 0, _LAST_MS))


def _let_go(each: NamedDispatcher) -> None:
    """Close files without the sync that queues make."""
    if isinstance(each.dispatcher, ConsumeQueues):
        for queue in each.dispatcher._queues.values():
            queue.close()
        each.dispatcher._maker.opened.close()
        return
    with suppress(LakelogError):
        each.dispatcher.close()


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


# --- an open store ---


def _scanned(store: Store) -> dict[int, StoredMessage]:
    """All messages; what is missing where the log is damaged is found anyway."""
    return {each.physical_offset: each for each in store.scan(on_damage=lambda _: None)}


def _check_get(store: Store, queue: tuple[str, int], messages: Found) -> None:
    got: list[int] = []
    at, end = min(messages), max(messages) + 1
    while at < end:
        result = store.get(*queue, at, 1000)
        if result.next_offset <= at:
            raise Violation(f"{queue[0]}/{queue[1]} cannot be read on from {at}: {result.status}")
        got += (each.physical_offset for each in result.messages)
        at = result.next_offset
    due = [messages[number] for number in sorted(messages)]
    verdicts.same(got, due, f"{queue[0]}/{queue[1]}")


def _queried(store: Store, found: Found, topic: str, key: str) -> list[int]:
    got = [each.physical_offset for each in store.query(topic, key, max_messages=10_000)]
    if any(each not in found for each in got):
        raise Violation(f"key {key!r} of {topic} returns a message that is not in the log")
    return got


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
