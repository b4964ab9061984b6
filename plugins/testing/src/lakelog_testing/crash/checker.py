"""Opens the state after a crash, runs recovery, and checks every guarantee."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs

from lakelog import Store
from lakelog.errors import LakelogError, PluginError
from lakelog.files.checkpoint import StoreCheckpoint, read_checkpoint
from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import ABORT_FILE
from lakelog.log.damage import read_damage
from lakelog.message import Message, StoredMessage
from lakelog_testing.crash.ledger import Entry, Expected
from lakelog_testing.crash.opener import Opener, Tool, owned_by
from lakelog_testing.crash.quarantined import LogBytes, not_kept
from lakelog_testing.crash.verdicts import (
    Queues,
    Violation,
    alive,
    by_queue,
    check_bounds,
    check_claim,
    check_lowered,
    check_synced_time,
    check_tail,
    check_units,
    checked_tombstones,
    compared,
    read_segments,
    same,
    since,
)

_NEW: Final = "after the crash"
_PATIENCE_MS: Final = 60_000
"""Time limit for work of a thread, in ms: a busy machine may stall for seconds."""


@attrs.frozen
class Checker:
    """Checks directories left by crashes; all methods raise :class:`Violation`."""

    opener: Opener

    def check(
        self,
        path: Path,
        expected: Expected,
        rng: Random,
        before: LogBytes | None = None,
        tool: Tool | None = None,
    ) -> None:
        """Open ``path``, check everything, put again, close; raises :class:`Violation`.

        :param before: the log as the crash left it
        :param tool: a tool to run on the store first
        """
        claimed, checkpoint = self.claimed(path), read_checkpoint(self.opener.real, path)
        if tool is not None:
            self.mended(path, tool)
        store = self.opened(path)
        try:
            check_claim(claimed, store.max_offset)
            _check_tail(store)
            found = {each.physical_offset: each for each in store.scan(on_damage=_pass_over)}
            self.check_times(path, checkpoint, store.max_offset, found)
            kept = self.examine(store, expected, rng)
            self.check_asides(path, expected, kept, before, store.min_offset)
            _puts_again(store, rng)
        finally:
            with suppress(LakelogError):
                store.close()

    def claimed(self, path: Path) -> int:
        """The end of the log claimed by the checkpoint, without parts that the settings cut.

        A repair keeps records after damage, whatever the settings say. If the settings truncate the
        log there, the next open does so, regardless of the checkpoint.
        """
        claimed = read_checkpoint(self.opener.real, path).confirm_offset
        if self.opener.settings.core.on_damage != "truncate":
            return claimed
        return min([claimed, *(each.offset for each in read_damage(self.opener.real, path))])

    def check_times(
        self,
        path: Path,
        before: StoreCheckpoint,
        end_offset: int,
        found: Mapping[int, StoredMessage],
    ) -> None:
        """Check that the times in a recovered store's checkpoint are those of messages in its log.

        :param before: the checkpoint before recovery
        """
        if self.opener.settings.core.on_damage != "truncate":
            check_synced_time(before, found)
        check_lowered(read_checkpoint(self.opener.real, path), end_offset, found)

    def opened(self, path: Path) -> Store:
        """The store, recovered."""
        try:
            return self.opener.open(path)
        except Exception as error:
            raise Violation(f"it does not open: {type(error).__name__}: {error}") from error

    def mended(self, path: Path, tool: Tool, files: FileSystem | None = None) -> None:
        """Run a tool on the state after a crash; it must leave a clean stop."""
        try:
            if self.opener.mend(path, tool, files) and (path / ABORT_FILE).exists():
                raise Violation(f"{_name(tool)} left no clean stop")
        except (Violation, PluginError):
            raise
        except Exception as error:
            raise Violation(f"{_name(tool)} fails: {type(error).__name__}: {error}") from error

    def check_asides(
        self,
        path: Path,
        expected: Expected,
        kept: Container[int],
        before: LogBytes | None,
        minimum: int,
    ) -> None:
        """Check that whole records removed or skipped by recovery are in quarantine."""
        gone = {at: data for at, data in expected.aside.items() if at not in kept}
        if before is not None:
            gone.update(before.whole(expected.may, kept))
        gone = {at: data for at, data in gone.items() if at >= minimum}
        lost = not_kept(self.opener.real, path, gone)
        if lost:
            raise Violation(
                f"whole records at {lost[:5]} were taken out, and are not in quarantine"
            )

    def examine(self, store: Store, expected: Expected, rng: Random) -> dict[int, Entry]:
        """Check an open store; returns its messages by offset."""
        found = {each.physical_offset: each for each in store.scan(on_damage=_pass_over)}
        kept = compared(found, since(store.min_offset, expected))
        if not store.wait_dispatched():
            raise Violation("queues and index do not come to the end of the log")
        ends = checked_tombstones(owned_by(store).directory.files, store.path, expected)
        live = alive(found.values(), ends)
        gone = {topic: must or topic in ends for topic, (_, must) in expected.deleted.items()}
        _check_queues(store, by_queue(live), gone, rng)
        if self.opener.has_key_index and live:
            _check_keys(store, live, found, rng)
        return kept


def _check_tail(store: Store) -> None:
    directory = owned_by(store).directory
    segments = read_segments(directory.files, directory.commitlog)
    check_tail(segments, store.settings.core.segment_size_bytes, store.max_offset)


def _name(tool: Tool) -> str:
    return getattr(tool, "__name__", repr(tool))


def _pass_over(_piece: Any) -> None:
    """Ignore damage: missing messages are found anyway."""


# --- queues ---


def _check_queues(store: Store, queues: Queues, gone: Mapping[str, bool], rng: Random) -> None:
    """Check that every record is at its place in its queue, and every unit points to a record."""
    for queue, messages in queues.items():
        bounds = check_bounds(queue, store.queue_bounds(*queue), messages)
        units = store.queue_units(*queue, bounds[0], bounds[1] - bounds[0])
        check_units(queue, units, messages, store.max_offset)
    for info in store.queues():
        if (info.topic, info.queue_id) not in queues:
            _check_empty(store, info.topic, info.queue_id, gone.get(info.topic, True))
    if queues:
        _check_get(store, *rng.choice(list(queues.items())))


def _check_empty(store: Store, topic: str, queue_id: int, must: bool) -> None:
    """Check an empty or removed queue; ``must`` is whether its removal had finished."""
    bounds = store.queue_bounds(topic, queue_id)
    if bounds is None or bounds[0] >= bounds[1]:
        return
    units = store.queue_units(topic, queue_id, bounds[0], bounds[1] - bounds[0])
    if len(units) and int(units.offsets.max()) >= store.max_offset:
        raise Violation(f"{topic}/{queue_id} points behind the log")
    if must and len(store.get(topic, queue_id, bounds[0], 100).messages):
        raise Violation(f"{topic}/{queue_id} gives messages that the log has not, or were removed")


def _check_get(store: Store, queue: tuple[str, int], messages: Mapping[int, StoredMessage]) -> None:
    got: list[int] = []
    at, end = min(messages), max(messages) + 1
    while at < end:
        result = store.get(*queue, at, 1000)
        if result.next_offset <= at:
            raise Violation(f"{queue[0]}/{queue[1]} cannot be read on from {at}: {result.status}")
        got += (each.physical_offset for each in result.messages)
        at = result.next_offset
    same(got, [messages[number] for number in sorted(messages)], f"{queue[0]}/{queue[1]}")


def _check_keys(
    store: Store, live: Sequence[StoredMessage], found: Mapping[int, StoredMessage], rng: Random
) -> None:
    """Check that a query for a key returns all its records; removed queues' may be among them."""
    message = rng.choice(live)
    if not message.keys:
        return
    key = rng.choice(message.keys)
    due = [each for each in live if each.topic == message.topic and key in each.keys]
    try:
        found_by_key = store.query(message.topic, key, max_messages=10_000)
        got = [each.physical_offset for each in found_by_key]
    except LakelogError as error:
        text = f"key {key!r} of {message.topic} gives {type(error).__name__}: {error}"
        raise Violation(text) from error
    if any(each not in found for each in got):
        raise Violation(f"key {key!r} of {message.topic} returns a message that is not in the log")
    there = {each.physical_offset for each in live}
    same([each for each in got[::-1] if each in there], due, f"key {key!r} of {message.topic}")


# --- continuing ---


def _puts_again(store: Store, rng: Random) -> None:
    message = Message("orders", _NEW.encode() + rng.randbytes(8), queue_id=rng.randint(0, 1))
    try:
        result = store.put(message)
        if not store.wait_dispatched(result.end_offset, _PATIENCE_MS):
            raise Violation(f"a message put after the crash is not dispatched: {result}")
        got = store.get("orders", result.queue_id, result.queue_offset, 1).messages
    except LakelogError as error:
        raise Violation(f"it takes no puts: {type(error).__name__}: {error}") from error
    if [bytes(each.body) for each in got] != [message.body]:
        raise Violation(f"a message put after the crash is not found at {result}")
