"""An open store without its queues: puts, the log in order, maintenance, lifecycle.

:class:`Producer` puts messages of one topic without ``Message`` objects: the fastest way for
single messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakSet, ref

from lakelog.arguments import WrongValue, span_ms, whole, wrong_type
from lakelog.dispatch import Lag
from lakelog.errors import DispatchStopped, SettingsError, StoreError
from lakelog.format.encoder import encode_topic
from lakelog.format.properties import check_tags
from lakelog.format.record_batch import Piece
from lakelog.hooks import CleaningReport, DiskReport
from lakelog.log.log_reader import LogReader, OnDamage, iterates, reads
from lakelog.log.put_future import BatchFuture, PutFuture, is_called_back
from lakelog.log.store_directory import readable
from lakelog.message import Body, Message, MessageColumns, StoredMessage
from lakelog.results import PutResult
from lakelog.runtime.forks import OfThisProcess
from lakelog.settings.effective import Settings
from lakelog.store.owner import OwnedStore
from lakelog.store.parts import RefusingWriter, Role, RoleParts, RoleState

if TYPE_CHECKING:
    from lakelog.log.appender import Appender
    from lakelog.recovery.report import RecoveryReport


class Producer(OfThisProcess):
    """Puts messages of one topic into one store; made by :meth:`lakelog.Store.producer`.

    Thread-safe; usable as long as the store is open.

    :ivar topic: the topic of all its messages
    :ivar tags: the tags of all its messages; ``None`` without tags
    :ivar queue: the queue id of all its messages; ``None`` lets the store choose one per message
    """

    def __init__(self, topic: str, tags: str | None, queue: int | None) -> None:
        """Check the topic, the tags and the queue.

        Raises :class:`~lakelog.errors.IllegalMessage`, ``ValueError`` or ``TypeError`` for values
        that no message can have.
        """
        encode_topic(topic)
        self.topic = topic
        self.tags = None if tags is None else check_tags(tags)
        self.queue = None if queue is None else whole("queue", queue)

    def bind(self, puts: Appender | RefusingWriter) -> None:
        """Put through ``puts`` from now on; called by the store."""
        self._puts = puts
        self.put = puts.bound(self.topic, self.tags, self.queue)  # type: ignore[method-assign,assignment]  # saves a call per message

    def put(self, body: Body, keys: str | Sequence[str] | None = None) -> PutResult:
        """Append one message, as :meth:`lakelog.Store.put`.

        :param keys: one key, or several
        """
        return self._puts.bound(self.topic, self.tags, self.queue)(body, keys)

    def put_many(
        self, bodies: Any, keys: str | Sequence[str | Sequence[str] | None] | None = None
    ) -> Sequence[PutResult]:
        """Append many messages contiguously, as :meth:`lakelog.Store.put_columns`.

        :param bodies: a list of ``bytes``, or an Arrow array of binary values or strings
        :param keys: one value for all bodies, or a list with one entry per body
        """
        from lakelog.message import body_column  # brings NumPy

        columns = MessageColumns(self.topic, body_column(bodies), self.queue, self.tags, keys)
        return self._puts.put_batch(columns)

    def __repr__(self) -> str:
        return f"<lakelog.Producer of {self.topic!r}>"


class LogStore(OfThisProcess):
    """An open store; made by :func:`lakelog.open`, closed by :meth:`close` or ``with``.

    Thread-safe.

    :ivar path: the store directory
    :ivar settings: the settings in force, each with its origin
    """

    def __init__(self, parts: RoleParts, again: Callable[[], RoleParts] | None = None) -> None:
        request = parts.request
        self._current = RoleState(parts, again)
        self.path: Path = request.path
        self.settings: Settings = request.settings
        self._producers = WeakSet[Producer]()
        self._current.on_swap = _binder(ref(self))
        self._bind(parts)

    def _bind(self, parts: RoleParts) -> None:
        """Bind ``put`` of a writing store directly to the appender, to save a call per message."""
        if parts.log is None:
            self.__dict__.pop("put", None)
        else:
            self.put = parts.puts.put  # type: ignore[method-assign,assignment]  # the same function
        for producer in list(self._producers):
            producer.bind(parts.puts)

    # --- writing ---

    def put(self, message: Message) -> PutResult:
        """Append one message.

        :returns: its position, and the status ``PUT_OK``

        Raises :class:`~lakelog.PutRefused` if the message is not in the log,
        :class:`~lakelog.NotDurable` if it is, but was not durable or copied in time (with the
        setting ``on_late = "return"`` the status says so),
        :class:`~lakelog.errors.StrategyFailed` if it is, but the flush strategy or the replicator
        failed, and :class:`~lakelog.errors.StoreFailed` if a write or sync failed.
        """
        return self._current.last().puts.put(message)

    def put_batch(self, messages: Sequence[Message]) -> Sequence[PutResult]:
        """Append many messages of any topics and queues contiguously, in their order.

        Either all are appended or none, with one wait for all. A batch larger than the space in
        one segment is split, with one wait per part. :class:`~lakelog.PutRefused` then holds the
        results of the parts already in the log in ``accepted``. ``result`` of
        :class:`~lakelog.NotDurable` holds those of all messages.

        Raises as :meth:`put`, and ``TypeError`` for anything but a sequence.
        """
        return self._current.last().puts.put_batch(_sequence(messages))

    def put_columns(
        self,
        topic: str,
        bodies: Any,
        *,
        queue_ids: int | Sequence[int | None] | None = None,
        tags: str | Sequence[str | None] | None = None,
        keys: str | Sequence[str | Sequence[str] | None] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Sequence[PutResult]:
        """Append many messages of one topic from columns: the fastest way to write.

        :param bodies: a list of ``bytes``, or an Arrow array of binary values or strings
        :param queue_ids: one value for all, or one per body; so are ``tags`` and ``keys``
        :param properties: further properties, the same for all messages

        Raises ``ValueError`` if the lengths differ. Otherwise as :meth:`put_batch`, which also
        accepts :class:`~lakelog.MessageColumns`.
        """
        from lakelog.message import body_column  # brings NumPy

        return self.put_batch(
            MessageColumns(topic, body_column(bodies), queue_ids, tags, keys, properties)
        )

    def producer(
        self, topic: str, *, tags: str | None = None, queue: int | None = None
    ) -> Producer:
        """Return a producer, which puts messages of one topic from bodies and keys: fast in loops.

        :param tags: the tags of all its messages
        :param queue: the queue id of all its messages; by default the store chooses one per message

        Raises :class:`~lakelog.errors.IllegalMessage`, ``ValueError`` or ``TypeError`` for values
        that no message can have.
        """
        made = Producer(topic, tags, queue)
        self._producers.add(made)
        made.bind(self._current.last().puts)
        return made

    def put_async(self, message: Message) -> PutFuture:
        """Append one message, as :meth:`put`, and wait for sync and copies in the background.

        :returns: an awaitable :class:`concurrent.futures.Future` with the result or error of
            :meth:`put`; it cannot be cancelled

        The body is copied before this returns. A callback of the future may put again and wait for
        the result. Callbacks run in the answering thread: a slow callback delays the other results.
        """
        return self._current.last().puts.put_async(message)

    def put_batch_async(self, messages: Sequence[Message]) -> BatchFuture:
        """:meth:`put_batch`, with the wait for sync and copies in the background.

        :returns: an awaitable :class:`concurrent.futures.Future` with the result or error of
            :meth:`put_batch`
        """
        return self._current.last().puts.put_batch_async(_sequence(messages))

    @property
    def puts_wait(self) -> bool:
        """Whether a put may wait for a sync or for copies, by its flush strategy or replicator.

        If so, code in an event loop calls :meth:`put_async`. Otherwise it calls :meth:`put`, which
        takes less time.
        """
        return not self._current.last().puts.answers_at_once

    def flush(self) -> int:
        """Make all earlier puts durable, with any flush strategy.

        :returns: the durable end, an offset of the log

        Raises :class:`~lakelog.errors.StoreFailed` if the sync fails, and
        :class:`~lakelog.errors.StoreReadOnly` in a store opened for reading.
        """
        return self._current.now().puts.flush()

    # --- reading the log ---

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
        """Like :meth:`scan`, by columns: record batches, blanks and damage in log order.

        :param verify: whether checksums are computed; without them, damage may look like a record
        """
        reader = self._reader
        return reader.pieces(reader.check_start(start), _end(end), verify=bool(verify))

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

        A reader reads it from the shared page while an owner lives. After a clean stop it is the
        end of the log. After a crash of lakelog it is the checkpoint's offset, until a recovery has
        run. Within one open store it never decreases.
        """
        return self._known_flushed() or 0

    @property
    @reads
    def is_flushed_known(self) -> bool:
        """Whether :attr:`flushed_offset` is known.

        It is unknown in a reader while RocketMQ has the store open, or after RocketMQ crashed. It
        is also unknown if lakelog crashed before its first checkpoint, within 10 s of the start. A
        value that this reader had before stays known.
        """
        return self._known_flushed() is not None

    @reads
    def wait_flushed(self, offset: int, timeout_ms: int = 10_000) -> bool:
        """Wait, in a non-owner process, until the log is durable up to ``offset``.

        The owner wakes the waiters. ``False`` on timeout, and at once if no living owner publishes
        its durable end: the store is closed, its owner crashed, or RocketMQ has it open.

        Raises :class:`~lakelog.errors.StoreClosed`. Raises ``ValueError`` in the owner: its puts
        wait, or it calls :meth:`~lakelog.Store.flush`.
        """
        parts, end = self._current.now(), whole("offset", offset)
        timeout_s = span_ms("timeout_ms", timeout_ms) / 1000
        if parts.owned is not None:
            raise WrongValue("this process owns the store; call flush() to make bytes durable")
        return parts.reader.wait_flushed(end, timeout_s)

    def _known_flushed(self) -> int | None:
        parts = self._current.last()
        return parts.reader.flushed() if parts.owned is None else parts.owned.positions.flushed

    # --- role ---

    @property
    def role(self) -> Role:
        """``owner``, ``attach`` (an owner runs in another process), ``read`` or ``replica``.

        A writing store changes from ``attach`` to ``owner`` when it takes over the services.
        """
        return self._current.last().role

    @property
    def _owned(self) -> OwnedStore | None:
        return self._current.last().owned

    @property
    def recovery(self) -> RecoveryReport | None:
        """The report of the recovery by this owner; ``None`` in any other role."""
        owned = self._owned
        return None if owned is None else owned.recovery

    # --- behind the append ---

    @property
    @reads
    def dispatched_offset(self) -> int:
        """Offset up to which the log is dispatched to queues and index."""
        return self._current.last().waits.offset

    @property
    @reads
    def dispatch_lag(self) -> Lag:
        """The distance of queues and index from the end of the log."""
        return self._current.last().waits.lag

    @property
    @reads
    def dispatch_failure(self) -> DispatchStopped | None:
        """The dispatcher's error if dispatching has stopped; puts continue."""
        return self._current.last().waits.failure

    @reads
    def wait_dispatched(self, offset: int | None = None, timeout_ms: int = 10_000) -> bool:
        """Wait until the log before ``offset`` is dispatched to queues and index.

        :param offset: such as a result's ``end_offset``; ``None`` is the readable end
        :returns: whether it was dispatched in time

        Raises :class:`~lakelog.errors.DispatchStopped` if dispatching has stopped.
        """
        end = self.max_offset if offset is None else whole("offset", offset)
        return self._current.now().waits.wait(end, span_ms("timeout_ms", timeout_ms) / 1000)

    def resume_dispatch(self) -> None:
        """Resume dispatching after the cause of a dispatcher's failure was removed.

        Raises :class:`~lakelog.errors.DispatchStopped` if it fails again.
        """
        self._current.manager()("resume_dispatch")

    # --- disk space ---

    def delete_expired(self, *, dry_run: bool = False) -> CleaningReport:
        """Run the store's cleaner now instead of at its set hour.

        It stops at the first segment that must stay, and the report gives the reason.

        :param dry_run: whether only to report the segments to delete; also allowed in a reader

        Raises :class:`~lakelog.errors.SettingsError` without a cleaner, and
        :class:`~lakelog.errors.StoreReadOnly`.
        """
        try:
            maintenance = self._current.now().maintenance
            report = maintenance.look() if dry_run else maintenance.delete_expired()
        except OSError as error:
            raise readable(error, self.path) from error
        if report is None:
            raise SettingsError(
                "no cleaner is set, so nothing is ever deleted; name one, such as 'retention'",
                key="cleaner",
            )
        return report

    @reads
    def disk(self) -> DiskReport | None:
        """Check how full the disks are; ``None`` without a watcher.

        In an owner the result pauses or resumes puts.
        """
        return self._current.now().maintenance.disk()

    @property
    def is_writable(self) -> bool:
        """Whether ``put`` is accepted: not read-only, not failed, disk not full."""
        parts = self._current.last()
        log = parts.log
        return log is not None and parts.role != "replica" and log.health.takes_puts

    @property
    def read_only(self) -> bool:
        """Whether the store was opened for reading."""
        return self.role == "read"

    # --- lifecycle ---

    def close(self) -> None:
        """Flush and close; a second call does nothing.

        Raises :class:`~lakelog.errors.StoreError` in a callback of a put, since closing waits for
        that put; the store stays open then.
        """
        if is_called_back():
            raise StoreError(
                "it cannot be closed in a callback of a put, as this thread completes the puts; "
                "close it in another thread, such as one that waits for the future",
                path=self.path,
            )
        self._current.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    if not TYPE_CHECKING:  # with it, type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            """Explain why a method of :class:`lakelog.Store` is missing."""
            if name in _OF_QUEUES:
                how = "pip install lakelog-queues, and do not switch the plugin off"
                raise AttributeError(f"{name} comes with the plugin 'queues': {how}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        state = "closed" if self._current.closed else _STATES[self.role]
        return f"<lakelog.Store {self.path} ({state})>"


_OF_QUEUES: Final = (
    *("get", "get_async", "get_columns", "read", "read_async", "topics", "queues", "queue_bounds"),
    *("queue_units", "offset_by_time", "earliest_time", "query", "query_offsets", "consumer"),
    *("groups", "delete_topic", "delete_unused_topics", "subscribe", "watch_async", "get_records"),
    *("look_up_record", "commit_offsets", "forget_offsets", "arrivals", "work", "group_status"),
)
"""The methods of :class:`lakelog.Store` that need queues."""

_STATES: Final[Mapping[Role, str]] = {
    "owner": "owned",
    "attach": "attached",
    "read": "reading",
    "replica": "receiving",
}


def _binder(store: ref[LogStore]) -> Callable[[RoleParts], None]:
    """Return a function that rebinds the puts of ``store`` if it still exists."""

    def bind(parts: RoleParts) -> None:
        found = store()
        if found is not None:
            found._bind(parts)

    return bind


def _sequence(messages: Sequence[Message]) -> Sequence[Message]:
    """Return ``messages`` if it is a sized collection of messages; raise otherwise."""
    if not isinstance(messages, Sequence):
        several = "a list of messages; put() takes a single one"
        raise wrong_type("messages", messages, several)
    return messages


def _end(end: int | None) -> int | None:
    return None if end is None else whole("end", end)
