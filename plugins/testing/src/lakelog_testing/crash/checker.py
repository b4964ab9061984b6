"""Opens the state that a crash left, which recovers it, and checks every guarantee."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

import attrs

from lakelog import Store
from lakelog.errors import LakelogError, PluginError
from lakelog.files.checkpoint import read_checkpoint
from lakelog.files.filesystem import FileSystem
from lakelog.format.layout import ABORT_FILE
from lakelog.log.sources import read_damage
from lakelog.message import Message, StoredMessage
from lakelog_testing.crash import verdicts
from lakelog_testing.crash.ledger import Entry, Expected
from lakelog_testing.crash.opener import Opener, Tool, owned_by

_NEW: Final = b"after the crash"
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
        before: verdicts.LogBytes,
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
            raise verdicts.Violation(
                f"it does not open: {type(error).__name__}: {error}"
            ) from error
        try:
            verdicts.check_claim(claimed, store.max_offset)
            directory = owned_by(store).directory
            verdicts.check_tail(directory.files, directory.commitlog, store)
            found = _scanned(store)
            if not self._truncates:
                verdicts.check_synced_time(checkpoint, found)
            verdicts.check_lowered(read_checkpoint(self.opener.real, path), store.max_offset, found)
            kept = self.examine(store, expected, rng)
            gone = {at: data for at, data in expected.aside.items() if at not in kept}
            gone.update(before.whole(expected.may, kept))
            removed = {at: data for at, data in gone.items() if at >= store.min_offset}
            verdicts.check_asides(self.opener.real, path, removed)
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
            ends += [each.offset for each in read_damage(real, path)]
        return min(ends)

    def mended(self, path: Path, tool: Tool, files: FileSystem | None = None) -> None:
        """Run a tool on the state after a crash; it must leave a clean stop."""
        name = getattr(tool, "__name__", repr(tool))
        try:
            was_there = self.opener.mend(path, tool, files)
        except PluginError:
            raise
        except Exception as error:
            raise verdicts.Violation(f"{name} fails: {type(error).__name__}: {error}") from error
        if was_there and (path / ABORT_FILE).exists():
            raise verdicts.Violation(f"{name} left no clean stop")

    def examine(self, store: Store, expected: Expected, rng: Random) -> dict[int, Entry]:
        """Check log, queues and index of an open store, after everything is dispatched.

        :returns: the entries of its messages, by offset
        """
        found = _scanned(store)
        kept = verdicts.compared(found, verdicts.since(store.min_offset, expected))
        if not store.wait_dispatched():
            raise verdicts.Violation("queues and index do not come to the end of the log")
        directory = owned_by(store).directory
        ends = verdicts.checked_tombstones(directory.files, directory.path, expected)
        live = [each for each in found.values() if each.physical_offset >= ends.get(each.topic, 0)]
        gone = {topic: must or topic in ends for topic, (_, must) in expected.deleted.items()}
        queues = verdicts.by_queue(live)
        verdicts.check_queues(store, queues, gone, found)
        if queues:
            verdicts.check_get(store, *rng.choice(list(queues.items())))
        if self.opener.has_key_index and live:
            verdicts.check_a_key(store, live, found, rng)
        return kept


def _scanned(store: Store) -> dict[int, StoredMessage]:
    """All messages; what is missing where the log is damaged is found anyway."""
    return {each.physical_offset: each for each in store.scan(on_damage=lambda _: None)}


def _puts_again(store: Store, rng: Random) -> None:
    message = Message("orders", _NEW + rng.randbytes(8), queue_id=rng.randint(0, 1))
    try:
        result = store.put(message)
        if not store.wait_dispatched(result.end_offset, _PATIENCE_MS):
            raise verdicts.Violation(f"a message put after the crash is not dispatched: {result}")
        got = store.get("orders", result.queue_id, result.queue_offset, 1).messages
    except LakelogError as error:
        raise verdicts.Violation(f"it takes no puts: {type(error).__name__}: {error}") from error
    if [bytes(each.body) for each in got] != [message.body]:
        raise verdicts.Violation(f"a message put after the crash is not found at {result}")
