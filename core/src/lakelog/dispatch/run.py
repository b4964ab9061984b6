"""Hands runs of records to the dispatchers, in the order that the settings state.

A dispatcher that raises stops it: nothing is passed over in silence, and nothing behind that
record is handed to anybody until it was seen to.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from lakelog.errors import DispatchStopped
from lakelog.interfaces import Dispatcher
from lakelog.log.reading.pieces import Blank, Damage, Piece

if TYPE_CHECKING:
    from lakelog.codec.recordbatch import RecordBatch

_log = logging.getLogger("lakelog")


@attrs.frozen
class NamedDispatcher:
    """A dispatcher and its name in the settings."""

    name: str
    dispatcher: Dispatcher


class DispatchCursor:
    """How far the log has come to the dispatchers; used by one thread at a time.

    :ivar offset: everything before it was dispatched, in bytes from the start of the log
    :ivar dispatchers: who is given everything, in order
    :ivar last_timestamp_ms: store time of the last record that was dispatched
    :ivar failure: why it stands still, if a dispatcher failed
    """

    def __init__(self, path: Path, dispatchers: Sequence[NamedDispatcher], offset: int) -> None:
        self.offset = offset
        self.last_timestamp_ms = 0
        self.failure: DispatchStopped | None = None
        self._path = path
        self._records = 0
        self.dispatchers = dispatchers

    def run(self, pieces: Iterable[Piece]) -> None:
        """Dispatch what the log holds from ``offset`` on; damage is passed over, not kept.

        Raises :class:`~lakelog.errors.DispatchStopped`.
        """
        for piece in pieces:
            if isinstance(piece, Blank):
                self.offset = piece.offset + piece.size
            elif isinstance(piece, Damage):
                _log.warning("%s: nothing to dispatch there", piece)
            else:
                self.offset = piece.base_offset + int(piece.starts[0])
                self._batch(piece)

    def _batch(self, batch: RecordBatch) -> None:
        try:
            for each in self.dispatchers:
                each.dispatcher.dispatch(batch)
        except Exception:  # noqa: BLE001  # a third party's: found again, record by record
            self._singly(batch)
        self._reached(batch)

    def _reached(self, batch: RecordBatch) -> None:
        self.last_timestamp_ms = int(batch.store_timestamps_ms[-1])
        self.offset = batch.end_offset
        self._records += len(batch)

    def take_count(self) -> int:
        """How many records were dispatched since this was asked last."""
        count, self._records = self._records, 0
        return count

    def _singly(self, batch: RecordBatch) -> None:
        """Find the record that cannot be dispatched; those before it are."""
        for at in range(len(batch)):
            record = batch[at : at + 1]
            for each in self.dispatchers:
                try:
                    each.dispatcher.dispatch(record)
                except Exception as error:
                    raise self.stop(each.name, error) from error
            self._reached(record)

    def stop(self, name: str, error: Exception) -> DispatchStopped:
        """Note that ``name`` failed at the record that starts at ``offset``."""
        self.failure = DispatchStopped(
            f"dispatcher {name!r} failed at offset {self.offset}: {type(error).__name__}: {error};"
            " the log goes on, queues and index stay as they are until it is tried again: by a "
            "round of the cleaner, by resume_dispatch(), or by a reopen",
            dispatcher=name,
            offset=self.offset,
            path=self._path,
        )
        return self.failure


def forget(dispatchers: Iterable[NamedDispatcher], offset: int) -> None:
    """Let each dispatcher drop, durably, what stems from records at or behind ``offset``."""
    for each in dispatchers:
        each.dispatcher.truncate(offset)
        each.dispatcher.flush()


def resume(dispatchers: Iterable[NamedDispatcher], minimum: int, end: int) -> int:
    """Let each dispatcher look at what it has; the offset from which one lacks something."""
    return min(
        (each.dispatcher.resume(minimum, end) for each in dispatchers),
        default=end,
    )
