"""The store: wiring and lifecycle only; every duty is another module's."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from lakelog.directory import readable
from lakelog.dispatchwait import DispatchWait
from lakelog.errors import DispatchStopped, PutRefused, SettingsError
from lakelog.housekeeping.report import CleaningReport
from lakelog.interfaces import DiskReport
from lakelog.keeping import House, forget_unused
from lakelog.logreader import LogReader, OnDamage
from lakelog.message import Message, MessageColumns, StoredMessage
from lakelog.owner import OwnedLog
from lakelog.pieces import Piece
from lakelog.putfuture import PutFuture
from lakelog.queuestore import FORKED, QueueStore
from lakelog.registry.events import Events
from lakelog.reput import Lag
from lakelog.results import PutResult
from lakelog.settings.effective import Settings
from lakelog.status import PutStatus
from lakelog.topicremoval import delete_topic, forgetter

if TYPE_CHECKING:
    from lakelog.consumers.offsettable import OffsetTable
    from lakelog.reading.finder import Finder
    from lakelog.recovery.report import RecoveryReport


class Store(QueueStore):
    """An open store; made by :func:`lakelog.open`, closed by :meth:`close` or ``with``.

    All methods may be called from several threads.

    :ivar path: the store directory
    :ivar settings: what it was opened with, and where each value came from
    """

    def __init__(  # noqa: PLR0913  # what opening has prepared
        self,
        path: Path,
        settings: Settings,
        reader: LogReader,
        owned: OwnedLog | None,
        events: Events,
        waits: DispatchWait,
        make_finder: Callable[[], Finder],
        make_offsets: Callable[[], OffsetTable],
        *,
        house: House,
    ) -> None:
        super().__init__(make_finder, make_offsets)
        self.path = path
        self.settings = settings
        self._reader = reader
        self._owned = owned
        self._events = events
        self._waits = waits
        self._house = house
        if owned is not None:
            self.put = owned.appender.put  # type: ignore[method-assign]  # saves a call per message
            _heed_forks(weakref.ref(self))

    # --- writing ---

    def put(self, message: Message) -> PutResult:
        """Append one message.

        :returns: where it is; its status is ``PUT_OK``, or says what could not be had in time
            although the message is in the log

        Raises :class:`~lakelog.PutRefused` when the message is not in the log, and
        :class:`~lakelog.errors.StoreFailed` when a write or sync failed.
        """
        return self._writing().appender.put(message)

    def put_batch(self, messages: Sequence[Message]) -> Sequence[PutResult]:
        """Append many messages of any topics and queues, in their order and side by side.

        All are appended or none, and one wait covers all of them. A batch that does not fit into
        one segment goes in pieces, one wait each; :class:`~lakelog.PutRefused` then has the
        results of what is in the log already in ``accepted``.
        """
        return self._writing().appender.put_batch(messages)

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
        """Append many messages of one topic, without an object for each: the fastest way in.

        :param bodies: a list of ``bytes``, or an Arrow array of binary values or strings
        :param queue_ids: one for all, or one per body; so are ``tags`` and ``keys``
        :param properties: the same for all

        Else as :meth:`put_batch`, which also takes :class:`~lakelog.MessageColumns`.
        """
        from lakelog.codec.bodycolumn import body_column  # brings NumPy

        return self.put_batch(
            MessageColumns(topic, body_column(bodies), queue_ids, tags, keys, properties)
        )

    def put_async(self, message: Message) -> PutFuture:
        """Append one message in the background, in the order of the calls.

        :returns: a :class:`concurrent.futures.Future`, which can be awaited too; it gets what
            :meth:`put` would return or raise
        """
        return self._writing().appender.put_async(message)

    def _writing(self) -> OwnedLog:
        """Who appends; a closed store's refuses by itself, with a put's own status."""
        if self._owned is None:
            raise PutRefused(
                PutStatus.SERVICE_NOT_AVAILABLE,
                f"{self.path} is open for reading; open it with mode='owner' to write",
            )
        return self._owned

    def _managing(self) -> OwnedLog:
        self._check_open()
        return self._writing()

    # --- reading ---

    def look_up(self, where: int | str) -> StoredMessage:
        """The message whose record starts at an offset, or that has an offset message id.

        Raises :class:`~lakelog.errors.OffsetOutOfRange`, :class:`~lakelog.errors.CorruptRecord`,
        and ``ValueError`` for text that is no message id.
        """
        return self._reading().look_up(where)

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        on_damage: OnDamage | None = None,
    ) -> Iterator[StoredMessage]:
        """Every message whose record starts from ``start`` up to ``end``, in the log's order.

        :param start: an offset where a record starts; ``None`` and 0 are the first that is there
        :param end: an offset; ``None`` is the end of what is confirmed
        :param on_damage: told of bytes that are no whole record; without it they are logged. A
            damaged record is never yielded; whole ones behind it are.

        Raises :class:`~lakelog.errors.OffsetOutOfRange` where messages from ``start`` on were
        deleted, also while it reads: it never passes over some in silence.
        """
        reader = self._reading()
        return reader.messages(reader.check_start(start), end, on_damage)

    def scan_pieces(
        self, start: int | None = None, end: int | None = None, *, verify: bool = True
    ) -> Iterator[Piece]:
        """Like :meth:`scan`, by columns: record batches, blanks and damage in the log's order."""
        reader = self._reading()
        return reader.pieces(reader.check_start(start), end, verify=verify)

    @property
    def min_offset(self) -> int:
        """First byte of the log that is still there."""
        return self._reading().min_offset

    @property
    def oldest_offset(self) -> int:
        """First byte that can be read: of the archive, where the setting ``archive`` names one."""
        return self._reading().oldest_offset

    @property
    def max_offset(self) -> int:
        """Where reads stop: behind the last message that has its result."""
        return self._reading().max_offset

    @property
    def flushed_offset(self) -> int:
        """End of what is durable; 0 where that cannot be known, see :attr:`is_flushed_known`.

        The owner knows it. A reader takes it from the owner's positions page while one lives; after
        a clean stop it is the end of the log; after a crash of lakelog what the checkpoint vouches
        for, until a recovery has looked at the rest. Within one open store it never falls: what
        was durable stays so, whatever becomes of the owner.
        """
        return self._known_flushed() or 0

    @property
    def is_flushed_known(self) -> bool:
        """Whether :attr:`flushed_offset` can be known.

        It cannot in a store opened for reading beside a living RocketMQ, or after its crash; nor
        after a crash of lakelog before its first checkpoint, which comes within 10 s. What this
        reader knew before stays known.
        """
        return self._known_flushed() is not None

    def _known_flushed(self) -> int | None:
        owned = self._owned
        return self._reader.flushed() if owned is None else owned.positions.flushed

    @property
    def recovery(self) -> RecoveryReport | None:
        """What was found and done when this owner opened the store; ``None`` for a reader."""
        return self._owned.recovery if self._owned is not None else None

    # --- behind the append ---

    @property
    def dispatched_offset(self) -> int:
        """End of what queues and index know, in bytes from the start of the log."""
        return self._waits.offset

    @property
    def dispatch_lag(self) -> Lag:
        """How far queues and index are behind the log."""
        return self._waits.lag

    @property
    def dispatch_failure(self) -> DispatchStopped | None:
        """Why queues and index stand still, if a dispatcher failed; puts go on."""
        return self._waits.failure

    def wait_dispatched(self, offset: int | None = None, timeout_ms: int = 10_000) -> bool:
        """Wait until queues and index know everything before ``offset``.

        :param offset: such as a result's ``end_offset``; ``None`` is what is confirmed now
        :returns: whether they did in time

        Raises :class:`~lakelog.errors.DispatchStopped` if they do not get on.
        """
        self._reading()
        return self._waits.wait(self.max_offset if offset is None else offset, timeout_ms / 1000)

    def resume_dispatch(self) -> None:
        """Go on after a dispatcher failed and what it failed at was seen to.

        Raises :class:`~lakelog.errors.DispatchStopped` if it fails again.
        """
        self._managing().reput.resume()

    def delete_topic(self, topic: str) -> None:
        """Remove the queues of ``topic`` for good; its records stay in the log, without a queue.

        What is put from now on makes queues again, which go on with the same queue offsets. A
        tombstone keeps a recovery from bringing the old ones back; ``lakelog rebuild`` does. Those
        who have the store open for reading keep what they saw.

        Raises ``ValueError`` where no queue of ``topic`` is.
        """
        owned, known = self._managing(), self.topics()
        if topic not in known:
            near = ", ".join(map(repr, get_close_matches(str(topic), known)))
            raise ValueError(
                f"no queue of topic {topic!r} is here" + (f"; do you mean {near}?" if near else "")
            )
        try:
            with owned.reput.paused():
                end = owned.positions.confirmed
                owned.log.sync()  # a tombstone must not reach beyond what a power cut leaves
                forget = forgetter(owned.dispatchers)
                delete_topic(owned.directory.files, self.path, topic, end, forget)
        except OSError as error:
            raise readable(error, self.path) from error

    def delete_unused_topics(self) -> list[str]:
        """Remove the queues of topics of which the log holds nothing any more; their names."""
        owned = self._managing()
        try:
            with owned.reput.paused():
                return forget_unused(owned)
        except OSError as error:
            raise readable(error, self.path) from error

    # --- disk space ---

    def delete_expired(self, *, dry_run: bool = False) -> CleaningReport:
        """Delete now what the store's cleaner lets go, without waiting for its hour.

        It stops at the first segment that has to stay, and says why.

        :param dry_run: only say what would go; works in a store opened for reading, too

        Raises :class:`~lakelog.errors.SettingsError` where no cleaner is set, and
        :class:`~lakelog.errors.StoreReadOnly`.
        """
        self._check_open()
        report = self._house.clean(only_look=dry_run)
        if report is None:
            raise SettingsError(
                "no cleaner is set, so nothing is ever deleted; name one, such as 'retention'",
                key="cleaner",
            )
        return report

    def disk(self) -> DiskReport | None:
        """How full the disks are, and what follows from it; ``None`` without a watcher.

        It looks now: an owner's puts are refused, or taken again, by what is found.
        """
        self._check_open()
        return self._house.disk()

    @property
    def is_writable(self) -> bool:
        """Whether puts are taken; not by a reader, after a failure, or while a disk is full."""
        return self._owned is not None and self._owned.health.refusal is None

    @property
    def read_only(self) -> bool:
        """Whether the store was opened for reading."""
        return self._owned is None

    def _reading(self) -> LogReader:
        self._check_open()
        return self._reader

    # --- lifecycle ---

    def close(self) -> None:
        """Flush and close; nothing happens to a store that is closed."""
        if self._closed:
            return
        self._closed = True
        if self._forked:
            return
        try:
            self._house.close()
            self._close_offsets()
            self._waits.close()
            if self._owned is not None:
                self._owned.close()
        except OSError as error:
            raise readable(error, self.path) from error
        finally:
            self._events.store_closed(self.path)

    def _after_fork(self) -> None:
        """In a child of the owner: the threads are not there, and the files are the parent's."""
        self._forked = True
        if self._owned is not None:
            self._owned.health.forked(FORKED)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "reading" if self.read_only else "owned"
        return f"<lakelog.Store {self.path} ({state})>"


def _heed_forks(store: weakref.ref[Store]) -> None:
    """Tell an open store when it finds itself in a child process."""

    def after_fork() -> None:
        found = store()
        if found is not None:
            found._after_fork()

    os.register_at_fork(after_in_child=after_fork)
