"""The half of a store that reads the log in order, and says where it begins and ends."""

from __future__ import annotations

from collections.abc import Iterator

from lakelog.log.reading.failures import iterates, reads
from lakelog.log.reading.log_reader import LogReader, OnDamage
from lakelog.log.reading.pieces import Piece
from lakelog.message import StoredMessage
from lakelog.runtime.arguments import span_ms, whole
from lakelog.store.queue_view import QueueStore


class LogStore(QueueStore):
    """What :class:`~lakelog.Store` says about its log.

    Where a file cannot be read, all of it raises :class:`~lakelog.errors.ReadFailed`.
    """

    @property
    def _reader(self) -> LogReader:
        return self._current.now().reader

    @reads
    def look_up(self, where: int | str) -> StoredMessage:
        """The message whose record starts at an offset, or that has an offset message id.

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
        """Every message whose record starts from ``start`` up to ``end``, in the log's order.

        :param start: an offset where a record starts; ``None`` and 0 are the first that is there
        :param end: an offset; ``None`` is the end of what can be read
        :param on_damage: told of bytes that are no whole record; without it they are logged. A
            damaged record is never yielded; whole ones behind it are.

        Raises :class:`~lakelog.errors.OffsetOutOfRange` where messages from ``start`` on were
        deleted, also while it reads: it never passes over some in silence.
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
        """First byte of the log that is still there."""
        return self._reader.min_offset

    @property
    @reads
    def oldest_offset(self) -> int:
        """First byte that can be read: of the archive, where the setting ``archive`` names one."""
        return self._reader.oldest_offset

    @property
    @reads
    def max_offset(self) -> int:
        """Where reads stop: behind the last message that has its result."""
        return self._reader.max_offset

    @property
    @reads
    def flushed_offset(self) -> int:
        """End of what is durable; 0 where that cannot be known, see :attr:`is_flushed_known`.

        The owner knows it. A reader takes it from the owner's shared page while one lives; after
        a clean stop it is the end of the log; after a crash of lakelog what the checkpoint vouches
        for, until a recovery has looked at the rest. Within one open store it never falls: what
        was durable stays so, whatever becomes of the owner.
        """
        return self._known_flushed() or 0

    @property
    @reads
    def is_flushed_known(self) -> bool:
        """Whether :attr:`flushed_offset` can be known.

        It cannot in a store opened for reading beside a living RocketMQ, or after its crash; nor
        after a crash of lakelog before its first checkpoint, which comes within 10 s. What this
        reader knew before stays known.
        """
        return self._known_flushed() is not None

    @reads
    def wait_flushed(self, offset: int, timeout_ms: int = 10_000) -> bool:
        """Wait, beside an owner in another process, until everything before ``offset`` is durable.

        The owner wakes those who wait. ``False`` when the time is over, and at once where no living
        owner tells how far it has come: the store is closed, it crashed, or RocketMQ owns it.

        Raises :class:`~lakelog.errors.StoreClosed`, and ``ValueError`` in the owner, which waits
        for its own puts, or calls :meth:`~lakelog.Store.flush`.
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
