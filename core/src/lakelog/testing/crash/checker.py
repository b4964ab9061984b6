"""Opens what a crash left, lets recovery work, and checks that every promise was kept."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs

from lakelog.checkpoint import read_checkpoint
from lakelog.errors import LakelogError, PluginError
from lakelog.files import FileSystem, read_file
from lakelog.layout import ABORT_FILE
from lakelog.message import Message, StoredMessage
from lakelog.recovery.damagefile import read_damage
from lakelog.recovery.filler import FILLER_TOPIC
from lakelog.segmentdir import segment_files
from lakelog.store import Store
from lakelog.testing.crash.asides import LogBytes, not_kept
from lakelog.testing.crash.ledger import Entry, Expected
from lakelog.testing.crash.opener import Opener, Tool
from lakelog.tombstones import read_tombstones

_NEW: Final = "after the crash"


class Violation(Exception):
    """A promise was broken; the text says which."""


@attrs.frozen
class Checker:
    """Checks directories that crashes left."""

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
        :param tool: what works on the store first
        """
        claimed = self._claimed(path)
        if tool is not None:
            self.mended(path, tool)
        store = self.opened(path)
        try:
            _check_claim(claimed, store)
            _check_tail(store)
            kept = self.examine(store, expected, rng)
            self._check_asides(path, expected, kept, before, store.min_offset)
            _puts_again(store, rng)
        finally:
            with suppress(LakelogError):
                store.close()

    def _claimed(self, path: Path) -> int:
        """How much of the log the checkpoint claims, and nobody has asked to cut.

        A repair keeps what stands behind damage, whatever the settings say; where these have the
        log cut there, the next open does so, the checkpoint notwithstanding.
        """
        claimed = read_checkpoint(self.opener.real, path).confirm_offset
        if self.opener.settings.core.on_damage != "truncate":
            return claimed
        return min([claimed, *(each.offset for each in read_damage(self.opener.real, path))])

    def opened(self, path: Path) -> Store:
        """The store, recovered."""
        try:
            return self.opener.open(path)
        except Exception as error:
            raise Violation(f"it does not open: {type(error).__name__}: {error}") from error

    def mended(self, path: Path, tool: Tool, files: FileSystem | None = None) -> None:
        """Let a tool work on what the crash left; it is to leave a clean stop."""
        try:
            if self.opener.mend(path, tool, files) and (path / ABORT_FILE).exists():
                raise Violation(f"{_name(tool)} left no clean stop")
        except (Violation, PluginError):
            raise
        except Exception as error:
            raise Violation(f"{_name(tool)} fails: {type(error).__name__}: {error}") from error

    def _check_asides(
        self,
        path: Path,
        expected: Expected,
        kept: Container[int],
        before: LogBytes | None,
        minimum: int,
    ) -> None:
        """Whole records that a recovery took out of the log are in quarantine."""
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
        """Check a store that was opened; what it holds, by offset."""
        found = {each.physical_offset: each for each in store.scan(on_damage=_pass_over)}
        kept = _compared(found, _since(store.min_offset, expected))
        if not store.wait_dispatched():
            raise Violation("queues and index do not come to the end of the log")
        ends = _checked_tombstones(store, expected)
        live = [each for each in found.values() if each.physical_offset >= ends.get(each.topic, 0)]
        gone = {topic: must for topic, (_, must) in expected.deleted.items()}
        _check_queues(store, live, gone, rng)
        if self.opener.has_key_index and live:
            _check_keys(store, live, found, rng)
        return kept


def _check_claim(claimed: int, store: Store) -> None:
    """A checkpoint moves only after the sync that it claims."""
    if claimed > store.max_offset:
        raise Violation(f"the checkpoint claims {claimed} bytes, the log has {store.max_offset}")


def _check_tail(store: Store) -> None:
    """Nothing stands behind the end of the log: after a second crash it could come back."""
    directory, end = store._managing().directory, store.max_offset
    size = store.settings.core.segment_size_bytes
    for each in segment_files(directory.commitlog, directory.files.list(directory.commitlog)):
        if each.start_offset + size > end:
            data = read_file(directory.files, each.path) or b""
            if any(data[max(end - each.start_offset, 0) :]):
                raise Violation(f"{each.path.name} is not zero behind the end of the log, {end}")


def _since(minimum: int, expected: Expected) -> Expected:
    """What is expected of a log that begins at ``minimum``, if it may begin there."""
    least, most = expected.minimum
    if not least <= minimum <= most:
        raise Violation(f"the log begins at {minimum}, not at {least} to {most}")
    must = {offset: each for offset, each in expected.must.items() if offset >= minimum}
    return attrs.evolve(expected, must=must)


def _name(tool: Tool) -> str:
    return getattr(tool, "__name__", repr(tool))


def _pass_over(_piece: Any) -> None:
    """What is missing is noticed anyway."""


# --- the log ---


def _compared(found: Mapping[int, StoredMessage], expected: Expected) -> dict[int, Entry]:
    kept = {}
    for offset, message in found.items():
        if message.topic == FILLER_TOPIC:  # a repair put it where damage was
            continue
        entry = expected.may.get(offset)
        if entry is None and bytes(message.body) in expected.unplaced:
            entry = expected.unplaced[bytes(message.body)].placed(message)
        if entry is None:
            raise Violation(
                f"a message at {offset} was never put there, or was gone: {_told(message)}"
            )
        difference = entry.differs(message)
        if difference:
            raise Violation(f"the message at {offset} differs in {difference}: {_told(message)}")
        kept[offset] = entry
    lost = sorted(expected.must.keys() - found.keys())
    if lost:
        raise Violation(
            f"{len(lost)} of {len(expected.must)} messages that were promised are lost, "
            f"at {lost[:5]}; {len(found)} were found"
        )
    return kept


def _told(message: StoredMessage) -> str:
    return (
        f"{message.topic}/{message.queue_id} number {message.queue_offset}, {message.size} bytes, "
        f"body {bytes(message.body[:8]).hex()}"
    )


# --- queues ---


def _checked_tombstones(store: Store, expected: Expected) -> dict[str, int]:
    found = read_tombstones(store._managing().directory.files, store.path)
    for topic, end in found.items():
        if end not in expected.deleted.get(topic, (frozenset(), False))[0]:
            raise Violation(f"a tombstone of {topic!r} up to {end} that nobody asked for")
    for topic, (_, must) in expected.deleted.items():
        if must and topic not in found:
            raise Violation(f"the queues of {topic!r} were removed, and its tombstone is lost")
    return found


def _check_queues(
    store: Store, live: Sequence[StoredMessage], gone: Mapping[str, bool], rng: Random
) -> None:
    """Every record stands at its place in its queue, and every unit points to a record."""
    queues: dict[tuple[str, int], dict[int, StoredMessage]] = {}
    for each in live:
        queue = queues.setdefault((each.topic, each.queue_id), {})
        if each.queue_offset in queue:
            raise Violation(f"number {each.queue_offset} of {each.topic}/{each.queue_id} is twice")
        queue[each.queue_offset] = each
    for queue_name, messages in queues.items():
        _check_queue(store, queue_name, messages)
    for info in store.queues():
        if (info.topic, info.queue_id) not in queues:
            _check_empty(store, info.topic, info.queue_id, gone.get(info.topic, True))
    if queues:
        _check_get(store, *rng.choice(list(queues.items())))


def _check_queue(
    store: Store, queue: tuple[str, int], messages: Mapping[int, StoredMessage]
) -> None:
    name, bounds = f"{queue[0]}/{queue[1]}", store.queue_bounds(*queue)
    first, last = min(messages), max(messages)
    if bounds is None or bounds[0] > first or bounds[1] <= last:
        raise Violation(f"{name} goes over {bounds}, its records from {first} to {last}")
    units = store.queue_units(*queue, bounds[0], bounds[1] - bounds[0])
    places = zip(units.offsets.tolist(), units.sizes.tolist(), strict=True)
    at = dict(zip(units.queue_offsets.tolist(), places, strict=True))
    for number, message in messages.items():
        if at.get(number) != (message.physical_offset, message.size):
            raise Violation(
                f"number {number} of {name} should point to {message.physical_offset} "
                f"(+{message.size}) and points to {at.get(number)}"
            )
    end = store.max_offset
    for number, (offset, size) in at.items():
        if number not in messages and size > 0 and offset + size > end:
            raise Violation(f"number {number} of {name} points behind the log, to {offset}")


def _check_empty(store: Store, topic: str, queue_id: int, must: bool) -> None:
    """A queue of which no record is there, or was removed; ``must`` says that this had ended."""
    bounds = store.queue_bounds(topic, queue_id)
    if bounds is None or bounds[0] >= bounds[1]:
        return
    units = store.queue_units(topic, queue_id, bounds[0], bounds[1] - bounds[0])
    if len(units) and int(units.offsets.max()) >= store.max_offset:
        raise Violation(f"{topic}/{queue_id} points behind the log")
    if must and len(store.get(topic, queue_id, bounds[0], 100).messages):
        raise Violation(f"{topic}/{queue_id} gives messages that the log has not, or were removed")


def _check_get(store: Store, queue: tuple[str, int], messages: Mapping[int, StoredMessage]) -> None:
    got: list[StoredMessage] = []
    at, end = min(messages), max(messages) + 1
    while at < end:
        result = store.get(*queue, at, 1000)
        if result.next_offset <= at:
            raise Violation(f"{queue[0]}/{queue[1]} cannot be read on from {at}: {result.status}")
        got += result.messages
        at = result.next_offset
    _same(got, [messages[number] for number in sorted(messages)], f"{queue[0]}/{queue[1]}")


def _check_keys(
    store: Store, live: Sequence[StoredMessage], found: Mapping[int, StoredMessage], rng: Random
) -> None:
    """One key of one topic gives all that have it; those of removed queues may be among them."""
    message = rng.choice(live)
    if not message.keys:
        return
    key = rng.choice(message.keys)
    due = [each for each in live if each.topic == message.topic and key in each.keys]
    got = store.query(message.topic, key, max_messages=10_000)
    alive = {each.physical_offset for each in live}
    if any(each.physical_offset not in found for each in got):
        raise Violation(f"key {key!r} of {message.topic} gives what is not in the log")
    got = [each for each in got[::-1] if each.physical_offset in alive]
    _same(got, due, f"key {key!r} of {message.topic}")


def _same(got: Iterable[StoredMessage], due: Iterable[StoredMessage], what: str) -> None:
    one, other = [each.physical_offset for each in got], [each.physical_offset for each in due]
    if one != other:
        raise Violation(f"{what} gives what stands at {one}, and not at {other}")


# --- going on ---


def _puts_again(store: Store, rng: Random) -> None:
    message = Message("orders", _NEW.encode() + rng.randbytes(8), queue_id=rng.randint(0, 1))
    try:
        result = store.put(message)
        store.wait_dispatched(result.end_offset)
        got = store.get("orders", result.queue_id, result.queue_offset, 1).messages
    except LakelogError as error:
        raise Violation(f"it takes no puts: {type(error).__name__}: {error}") from error
    if [bytes(each.body) for each in got] != [message.body]:
        raise Violation(f"what is put after the crash is not found at {result}")
