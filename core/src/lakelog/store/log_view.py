"""The part of a store that reads the log in order, and its positions."""

from __future__ import annotations

from collections.abc import Iterator

from lakelog.log.reading.failures import iterates, reads
from lakelog.log.reading.log_reader import LogReader, OnDamage
from lakelog.log.reading.pieces import Piece
from lakelog.message import StoredMessage
from lakelog.runtime.arguments import span_ms, whole
from lakelog.store.queue_view import QueueStore


class LogStore(QueueStore):
    """The log methods of :class:`~lakelog.Store`.

    Each raises :class:`~lakelog.errors.ReadFailed` where a file cannot be read.
    """

    @property
    def _reader(self) -> LogReader:
        return self._current.now().reader

    @reads
    def look_up(self, where: int | str) -> StoredMessage:
        """Read one message by the offset of its record or by its offset message id.

        Raises :class:`~lakelog.errors.OffsetOutOfRange`, :class:`~lakelog.errors.CorruptRecord`,
        and ``ValueError`` for text that is no message id.
        """
        return self._reader.look_up(where)

    @iterates
    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        on_damage: OnDamage | None = None,
    ) -> Iterator[StoredMessage]:
        """Yield the messages whose records start in ``[start, end)``, in log order.

        :param start: an offset where a record starts; ``None`` and 0 mean the first one present
        :param end: an offset; ``None`` means the readable end
        :param on_damage: called with each damaged range; by default damage is logged. Damaged
            records are never yielded; whole records behind them are.

        Raises :class:`~lakelog.errors.OffsetOutOfRange` if messages from ``start`` on are deleted,
        before or during the scan; no message is skipped silently.
        """
        reader = self._reader
        return reader.messages(reader.check_start(start), _end(end), on_damage)

    @iterates
    def scan_pieces(
        self, start: int | None = None, end: int | None = None, *, verify: bool = True
    ) -> Iterator[Piece]:
        """Like :meth:`scan`, by columns: record batches, blanks and damage in the log's order."""
        reader = self._reader
        return reader.pieces(reader.check_start(start), _end(end), verify=verify)

    @property
    @reads
    def min_offset(self) -> int:
        """Offset of the first byte still in the log."""
        return self._reader.min_offset

    @property
    @reads
    def oldest_offset(self) -> int:
        """First readable offset, including the archive if the setting ``archive`` names one."""
        return self._reader.oldest_offset

    @property
    @reads
    def max_offset(self) -> int:
        """Offset where reads stop: the end of the last acknowledged message."""
        return self._reader.max_offset

    @property
    @reads
    def flushed_offset(self) -> int:
        """Durable end of the log; 0 if unknown, see :attr:`is_flushed_known`.

        A reader takes it from the shared page while an owner lives. After a clean stop it is the
        end of the log. After a crash of lakelog it is the checkpoint's offset, until a recovery has
        run. Within one open store it never falls.
        """
        return self._known_flushed() or 0

    @property
    @reads
    def is_flushed_known(self) -> bool:
        """Whether :attr:`flushed_offset` is known.

        It is unknown in a reader beside a living RocketMQ or after RocketMQ crashed. It is also
        unknown if lakelog crashed before its first checkpoint, within 10 s of the start. A value
        that this reader once had stays known.
        """
        return self._known_flushed() is not None

    @reads
    def wait_flushed(self, offset: int, timeout_ms: int = 10_000) -> bool:
        """Wait, in a non-owner process, until the log is durable up to ``offset``.

        The owner wakes the waiters. ``False`` on timeout, and at once where no living owner
        publishes its durable end: the store is closed, has crashed, or belongs to RocketMQ.

        Raises :class:`~lakelog.errors.StoreClosed`. Raises ``ValueError`` in the owner, which waits
        for its puts or calls :meth:`~lakelog.Store.flush`.
        """
        parts, end = self._current.now(), whole("offset", offset)
        if parts.owned is not None:
            raise ValueError("this process owns the store: what it needs to be durable it flushes")
        return parts.reader.wait_flushed(end, span_ms("timeout_ms", timeout_ms) / 1000)

    def _known_flushed(self) -> int | None:
        parts = self._current.last()
        return parts.reader.flushed() if parts.owned is None else parts.owned.positions.flushed


def _end(end: int | None) -> int | None:
    return None if end is None else whole("end", end)
