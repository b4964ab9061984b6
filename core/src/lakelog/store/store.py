"""The store: wiring and lifecycle only; every duty is another module's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet, ref

from lakelog.dispatch.runner import Lag
from lakelog.errors import DispatchStopped, SettingsError, StoreError
from lakelog.housekeeping.report import CleaningReport
from lakelog.interfaces import DiskReport
from lakelog.log.put_future import BatchFuture, PutFuture, is_called_back
from lakelog.log.reading.failures import reads
from lakelog.log.store_directory import readable
from lakelog.message import Message, MessageColumns
from lakelog.registry.events import Events
from lakelog.results import PutResult
from lakelog.runtime.arguments import WrongValue, span_ms, whole, wrong_type
from lakelog.settings.effective import Settings
from lakelog.store.log_view import LogStore
from lakelog.store.owner import OwnedLog
from lakelog.store.producer import Producer
from lakelog.store.roles.current import Current
from lakelog.store.roles.parts import Parts, Role

if TYPE_CHECKING:
    from lakelog.recovery.report import RecoveryReport


class Store(LogStore):
    """An open store; made by :func:`lakelog.open`, closed by :meth:`close` or ``with``.

    All methods may be called from several threads.

    :ivar path: the store directory
    :ivar settings: what it was opened with, and where each value came from
    """

    def __init__(
        self,
        path: Path,
        settings: Settings,
        parts: Parts,
        events: Events,
        again: Callable[[], Parts] | None = None,
    ) -> None:
        super().__init__(Current(path, parts, events, again))
        self.path = path
        self.settings = settings
        self._left_of: set[str] = set()  # topics that were deleted, and files may be left
        self._producers = WeakSet[Producer]()
        self._current.on_swap = _binder(ref(self))
        self._bind(parts)

    def _bind(self, parts: Parts) -> None:
        """Let puts of who writes go straight to their place, which saves a call per message."""
        if parts.owned is None and parts.joined is None:
            self.__dict__.pop("put", None)
        else:
            self.put = parts.puts.put  # type: ignore[method-assign]  # the same function
        self._unbind_lookups()
        for producer in list(self._producers):
            producer.bind(parts.puts)

    # --- writing ---

    def put(self, message: Message) -> PutResult:
        """Append one message.

        :returns: where it is; its status is ``PUT_OK``, or says what could not be had in time
            although the message is in the log

        Raises :class:`~lakelog.PutRefused` when the message is not in the log, and
        :class:`~lakelog.errors.StoreFailed` when a write or sync failed.
        """
        return self._current.last().puts.put(message)

    def put_batch(self, messages: Sequence[Message]) -> Sequence[PutResult]:
        """Append many messages of any topics and queues, in their order and side by side.

        All are appended or none, and one wait covers all of them. A batch that does not fit into
        one segment goes in pieces, one wait each; :class:`~lakelog.PutRefused` then has the
        results of what is in the log already in ``accepted``.
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

    def producer(
        self, topic: str, *, tags: str | None = None, queue: int | None = None
    ) -> Producer:
        """What puts messages of one topic from their bodies and keys: the way for loops.

        :param tags: of all of them
        :param queue: of all of them; without one the store chooses a queue for each

        Raises :class:`~lakelog.errors.IllegalMessage`, ``ValueError`` or ``TypeError`` for what no
        message can have.
        """
        made = Producer(topic, tags, queue)
        self._producers.add(made)
        made.bind(self._current.last().puts)
        return made

    def put_async(self, message: Message) -> PutFuture:
        """Append one message in the background, in the order of the calls.

        :returns: a :class:`concurrent.futures.Future`, which can be awaited too; it gets what
            :meth:`put` would return or raise

        A callback of the future may put again, and wait for it; it runs in the thread that answers,
        so that what takes long there holds others up.
        """
        return self._current.last().puts.put_async(message)

    def put_batch_async(self, messages: Sequence[Message]) -> BatchFuture:
        """:meth:`put_batch` in the background, in the order of the calls.

        :returns: a :class:`concurrent.futures.Future` of what :meth:`put_batch` would return or
            raise; it can be awaited too
        """
        return self._current.last().puts.put_batch_async(_sequence(messages))

    def flush(self) -> int:
        """Make durable what was put before this call, whatever the flush strategy does.

        :returns: the end of what is durable, an offset of the log

        Raises :class:`~lakelog.errors.StoreFailed` if that fails, and
        :class:`~lakelog.errors.StoreReadOnly` in a store that is open for reading.
        """
        return self._current.now().flush()

    # --- its role ---

    @property
    def role(self) -> Role:
        """``owner``, ``attach`` beside an owner in another process, or ``read``.

        One that writes turns from ``attach`` to ``owner`` when it takes the services over.
        """
        return self._current.last().role

    @property
    def _owned(self) -> OwnedLog | None:
        return self._current.last().owned

    @property
    def recovery(self) -> RecoveryReport | None:
        """What was found and done when this owner took the store; ``None`` where it is none."""
        owned = self._owned
        return None if owned is None else owned.recovery

    # --- behind the append ---

    @property
    @reads
    def dispatched_offset(self) -> int:
        """End of what queues and index know, in bytes from the start of the log."""
        return self._current.last().waits.offset

    @property
    @reads
    def dispatch_lag(self) -> Lag:
        """How far queues and index are behind the log."""
        return self._current.last().waits.lag

    @property
    @reads
    def dispatch_failure(self) -> DispatchStopped | None:
        """Why queues and index stand still, if a dispatcher failed; puts go on."""
        return self._current.last().waits.failure

    @reads
    def wait_dispatched(self, offset: int | None = None, timeout_ms: int = 10_000) -> bool:
        """Wait until queues and index know everything before ``offset``.

        :param offset: such as a result's ``end_offset``; ``None`` is what can be read now
        :returns: whether they did in time

        Raises :class:`~lakelog.errors.DispatchStopped` if they do not get on.
        """
        end = self.max_offset if offset is None else whole("offset", offset)
        return self._current.now().waits.wait(end, span_ms("timeout_ms", timeout_ms) / 1000)

    def resume_dispatch(self) -> None:
        """Go on after a dispatcher failed and what it failed at was seen to.

        Raises :class:`~lakelog.errors.DispatchStopped` if it fails again.
        """
        self._current.manager().resume_dispatch()

    def delete_topic(self, topic: str) -> None:
        """Remove the queues of ``topic`` for good; its records stay in the log, without a queue.

        What is put from now on makes queues again, which go on with the same queue offsets. A
        tombstone keeps a recovery from bringing the old ones back; ``lakelog rebuild`` does. It is
        durable before anything is removed, and from then on nobody finds a message of the topic by
        queue, time or key, in other processes neither.

        In a process without the services, the one that has them does it, as with
        :meth:`delete_unused_topics`, :meth:`delete_expired` and :meth:`resume_dispatch`. All four
        raise :class:`~lakelog.errors.StoreReadOnly` where the store is open for reading,
        :class:`~lakelog.errors.NoOwner` where nobody has the services for long, and
        :class:`~lakelog.errors.StoreLocked` where who has them does not answer.

        Raises ``ValueError`` where no queue of ``topic`` is,
        :class:`~lakelog.errors.DispatchStopped` where that cannot be known, and
        :class:`~lakelog.errors.StoreError` where the disk fails: either nothing has changed, or the
        topic is gone and files of it are left, as the message says. Then the next call of this, or
        the next open, removes them.
        """
        manager, known = self._current.manager(), self.topics()
        known = [*known, *self._left_of]
        if topic not in known and self.wait_dispatched():
            known = self.topics()  # what was put just before this call counts
        if topic not in known:
            near = ", ".join(map(repr, get_close_matches(str(topic), known)))
            raise WrongValue(
                f"no queue of topic {topic!r} is here" + (f"; do you mean {near}?" if near else "")
            )
        try:
            manager.delete_topic(topic)
        except OSError as error:
            raise readable(error, self.path) from error
        except StoreError:
            self._left_of.add(topic)
            raise
        self._left_of.discard(topic)

    def delete_unused_topics(self) -> list[str]:
        """Remove the queues of topics of which the log holds nothing any more; their names."""
        try:
            return self._current.manager().delete_unused_topics()
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
        try:
            if dry_run:
                report = self._current.now().house.look()
            else:
                report = self._current.manager().delete_expired()
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
        """How full the disks are, and what follows from it; ``None`` without a watcher.

        It looks now: an owner's puts are refused, or taken again, by what is found.
        """
        return self._current.now().house.disk()

    @property
    def is_writable(self) -> bool:
        """Whether puts are taken; not by a reader, after a failure, or while a disk is full."""
        parts = self._current.last()
        log = parts.owned or parts.joined
        return log is not None and log.health.takes_puts

    @property
    def read_only(self) -> bool:
        """Whether the store was opened for reading."""
        return self.role == "read"

    # --- lifecycle ---

    def close(self) -> None:
        """Flush and close; nothing happens to a store that is closed.

        Raises :class:`~lakelog.errors.StoreError` in a callback of a put, which it would wait for;
        the store stays open then.
        """
        if is_called_back():
            raise StoreError(
                "it cannot be closed in a callback of a put, whose thread has others to answer; "
                "let another thread close it, as one that waits for the future",
                path=self.path,
            )
        self._current.close()

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
        state = "closed" if self._current.closed else _STATES[self.role]
        return f"<lakelog.Store {self.path} ({state})>"


_STATES: Final[Mapping[Role, str]] = {"owner": "owned", "attach": "attached", "read": "reading"}


def _binder(store: ref[Store]) -> Callable[[Parts], None]:
    """What binds a store's puts anew, if it is still there."""

    def bind(parts: Parts) -> None:
        found = store()
        if found is not None:
            found._bind(parts)

    return bind


def _sequence(messages: Sequence[Message]) -> Sequence[Message]:
    """``messages``, if they are several that can be counted."""
    if not isinstance(messages, Sequence):
        several = "a list of messages; put() takes a single one"
        raise wrong_type("messages", messages, several)
    return messages
