"""Passes runs of records to the dispatchers, in the configured order.

An error in a dispatcher stops dispatching: no record is skipped, and no later record is passed to
any dispatcher until the error is resolved.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from lakelog_format.pieces import Blank, Damage, Piece
from lakelog_interfaces.errors import DispatchStopped
from lakelog_interfaces.strategies import Dispatcher, TopicRemover

if TYPE_CHECKING:
    from lakelog_format.codec.record_batch import RecordBatch

_log = logging.getLogger("lakelog")


@attrs.frozen
class NamedDispatcher:
    """A dispatcher and its name in the settings."""

    name: str
    dispatcher: Dispatcher


class DispatchCursor:
    """The progress of dispatching a log; used by one thread at a time.

    :ivar offset: the log is dispatched up to here, in bytes from its start
    :ivar dispatchers: all dispatchers, in order
    :ivar last_timestamp_ms: store time of the last dispatched record
    :ivar failure: why dispatching has stopped, if it has
    """

    def __init__(self, path: Path, dispatchers: Sequence[NamedDispatcher], offset: int) -> None:
        self.offset = offset
        self.last_timestamp_ms = 0
        self.failure: DispatchStopped | None = None
        self._path = path
        self._records = 0
        self.dispatchers = dispatchers

    def run(self, pieces: Iterable[Piece]) -> None:
        """Dispatch the log from ``offset`` on; damage is skipped.

        Raises :class:`~lakelog.errors.DispatchStopped`.
        """
        for piece in pieces:
            if isinstance(piece, Blank):
                self.offset = piece.offset + piece.size
            elif isinstance(piece, Damage):
                _log.warning("%s: nothing to dispatch there", piece)
            else:
                self.offset = piece.base_offset + piece.head(0)[0]
                self._batch(piece)

    def _batch(self, batch: RecordBatch) -> None:
        try:
            for each in self.dispatchers:
                each.dispatcher.dispatch(batch)
        except Exception:  # noqa: BLE001  # a plugin's, of any type: _singly finds its record and reports it
            self._singly(batch)
        self._reached(batch)

    def _reached(self, batch: RecordBatch) -> None:
        self.last_timestamp_ms = batch.head(-1)[2]
        self.offset = batch.end_offset
        self._records += len(batch)

    def take_count(self) -> int:
        """The number of records dispatched since the last call; resets it."""
        count, self._records = self._records, 0
        return count

    def _singly(self, batch: RecordBatch) -> None:
        """Dispatch one by one up to the record that fails."""
        for at in range(len(batch)):
            record = batch[at : at + 1]
            for each in self.dispatchers:
                try:
                    each.dispatcher.dispatch(record)
                except Exception as error:
                    raise self.stop(each.name, error) from error
            self._reached(record)

    def stop(self, name: str, error: Exception) -> DispatchStopped:
        """Stop: dispatcher ``name`` failed at the record at ``offset``."""
        self.failure = DispatchStopped(
            f"dispatcher {name!r} failed at offset {self.offset}: {type(error).__name__}: {error};"
            " puts continue, but queues and index get no new records until dispatching is retried: "
            "by a round of the cleaner, by resume_dispatch(), or by a reopen",
            dispatcher=name,
            offset=self.offset,
            path=self._path,
        )
        return self.failure


def forget(dispatchers: Iterable[NamedDispatcher], offset: int) -> None:
    """Have each dispatcher drop, durably, its entries of records at or behind ``offset``."""
    for each in dispatchers:
        each.dispatcher.truncate(offset)
        each.dispatcher.flush()


def resume(dispatchers: Iterable[NamedDispatcher], minimum: int, end: int) -> int:
    """Have each dispatcher examine its files; return the lowest offset to dispatch from."""
    return min(
        (each.dispatcher.resume(minimum, end) for each in dispatchers),
        default=end,
    )


def forget_topic(dispatchers: Iterable[NamedDispatcher], topic: str, end_offset: int) -> None:
    """Have each dispatcher remove ``topic``, and ignore its records below ``end_offset``.

    Dispatching must be paused. Raises as :meth:`~lakelog.interfaces.TopicRemover.forget_topic`.
    """
    for each in dispatchers:
        if isinstance(each.dispatcher, TopicRemover):
            each.dispatcher.forget_topic(topic, end_offset)
