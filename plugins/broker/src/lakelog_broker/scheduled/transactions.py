"""Transactions: half messages that are committed, rolled back, or asked about.

A half message waits in queue 0 of ``RMQ_SYS_TRANS_HALF_TOPIC``. Its end is a message with the tag
``d`` in ``RMQ_SYS_TRANS_OP_HALF_TOPIC``, whose body is the half message's queue offset and a comma.
A half message that is asked about is appended again first, so that the offset of the group
``CID_RMQ_SYS_TRANS`` moves on, and with it the log that must be kept. Source: RocketMQ 5.3.3,
``TransactionalMessageServiceImpl`` and ``EndTransactionProcessor``.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from typing import Final

import attrs

from lakelog import Message, Store, StoredMessage
from lakelog.errors import CorruptRecord, OffsetOutOfRange
from lakelog.format.sysflag import COMMIT, TRANSACTION_MASK
from lakelog.runtime.threads import in_thread
from lakelog_broker.appending import HALF_TOPIC, BrokerAppender
from lakelog_broker.properties import property_value, with_properties
from lakelog_broker.scheduled.delivering import MAX_DEFERRED, RETRY_MS, Clock, Deliverer, now_ms
from lakelog_broker.settings import BrokerSettings
from lakelog_broker.state.arrivals import ArrivalWaits
from lakelog_broker.state.members import MemberTable
from lakelog_broker.state.offsets import GroupOffsetTable

GROUP: Final = "CID_RMQ_SYS_TRANS"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
BATCH: Final = 128
_HALVES: Final = (HALF_TOPIC, 0)
_ENDS: Final = (OP_TOPIC, 0)
_RENEW_MS: Final = 3_600_000
"""A half message that is not to be asked about for so long is appended again in between."""
_LONGEST_WAIT_MS: Final = 10_000
_LOG: Final = logging.getLogger("lakelog.broker")


@attrs.define
class _Open:
    """A half message that is not ended.

    :ivar first_offset: its queue offset when the client sent it
    :ivar due_ms: when its outcome is asked for, in ms since 1970
    """

    physical_offset: int
    first_offset: int
    due_ms: int


class Transactions:
    """Ends transactions, and asks for the outcome of old ones; used from one event loop."""

    def __init__(  # its collaborators
        self,
        store: Store,
        appender: BrokerAppender,
        waits: ArrivalWaits,
        offsets: GroupOffsetTable,
        members: MemberTable,
        settings: BrokerSettings,
        *,
        clock: Clock = now_ms,
    ) -> None:
        self._store, self._appender, self._waits = store, appender, waits
        self._offsets, self._members, self._settings = offsets, members, settings
        self._clock = clock
        self._deliverer = Deliverer("a half message", store.look_up)
        self._next_offset = offsets.get(GROUP, *_HALVES) or 0
        self._open: dict[int, _Open] = {}  # by queue offset
        self._queue: list[tuple[int, int]] = []  # a heap of times and queue offsets
        self._unread: dict[int, int] = {}  # physical offset by queue offset, to be read again
        self._current: dict[int, int] = {}  # queue offset by the first one, of those moved
        self._ended: set[int] = set()
        # Queue offset of each message about ends, and the highest half message that it names.
        self._ends: deque[tuple[int, int]] = deque()
        self._retry_at_ms = 0
        self._to_ask: list[StoredMessage] = []
        self._turn = 0
        self._read_ends()

    def __len__(self) -> int:
        return len(self._open)

    def _read_ends(self) -> None:
        """Read from the op topic which half messages are ended."""
        offset = max(self._offsets.get(GROUP, *_ENDS) or 0, self._bounds(_ENDS)[0])
        deliverer = Deliverer("the end of transactions", self._store.look_up)
        while offset < self._bounds(_ENDS)[1]:
            units = self._store.queue_units(*_ENDS, offset, BATCH)
            for physical_offset in units.offsets.tolist():
                # Without an end its half message is asked about again, and nothing is lost.
                deliverer.deliver(physical_offset, self._note_ends)
            offset += max(1, len(units))
        self._ended = {each for each in self._ended if each >= self._next_offset}

    def _note_ends(self, stored: StoredMessage) -> None:
        numbers = [int(text) for text in bytes(stored.body).split(b",") if text.strip()]
        self._ended.update(numbers)
        self._ends.append((stored.queue_offset, max(numbers, default=-1)))

    # --- ends ---

    def end(
        self,
        physical_offset: int,
        half_offset: int,
        commit: bool | None,
        group: str | None = None,
    ) -> bool:
        """Commit a transaction or roll it back; both are in the log on return.

        :param physical_offset: offset of the half message in the log, as in the result of its put
        :param half_offset: its queue offset
        :param commit: ``None`` is an unknown outcome: it is asked for later
        :param group: the producer group, which must be that of the half message; ``None`` is any
        :returns: whether there is such a transaction that had not ended. After a restart that
            includes one that was asked about only under its new offsets: its producer is asked
            again

        Raises :class:`~lakelog.PutRefused` and :class:`~lakelog.errors.StoreError`; then the
        transaction has not ended, or is committed and may be asked about once more.
        """
        stored = self._half_at(physical_offset, half_offset)
        if stored is None:
            return False
        if group is not None and group_of(stored) != group:
            return False
        current = self._current.get(half_offset, half_offset)
        if current in self._ended or not self._is_open(current):
            return False
        if commit is None:
            return True
        if commit:
            self._appender.put_real(
                stored,
                (b"TRAN_MSG",),
                sets_aside=True,
                sys_flag=stored.sys_flag & ~TRANSACTION_MASK | COMMIT,
                prepared_transaction_offset=physical_offset,
            )
        self._put_end(current)
        return True

    def topic_of(self, physical_offset: int, half_offset: int) -> str | None:
        """The own topic of a half message; ``None`` if there is none at this place."""
        half = self._half_at(physical_offset, half_offset)
        return None if half is None else half.properties.get("REAL_TOPIC")

    def _half_at(self, physical_offset: int, half_offset: int) -> StoredMessage | None:
        try:
            stored = self._store.look_up(physical_offset)
        except (OffsetOutOfRange, CorruptRecord):
            return None
        is_half = (stored.topic, stored.queue_offset) == (HALF_TOPIC, half_offset)
        return stored if is_half else None

    def _is_open(self, offset: int) -> bool:
        """Whether a half message waits, or was not read yet."""
        return offset >= self._next_offset or offset in self._open or offset in self._unread

    def _put_end(self, offset: int) -> None:
        message = Message(OP_TOPIC, b"%d," % offset, tags="d", queue_id=0, wait_store_ok=False)
        put = self._store.put(message)
        self._ended.add(offset)
        self._ends.append((put.queue_offset, offset))
        self._unread.pop(offset, None)
        gone = self._open.pop(offset, None)
        if gone is not None:
            self._current.pop(gone.first_offset, None)

    # --- checks ---

    async def run(self) -> None:
        """Ask for outcomes until the task is cancelled."""
        while True:
            wait_ms = min(self.check_due() - self._clock(), _LONGEST_WAIT_MS)
            if self._to_ask:
                # The answer has the place of the new half message, which must be readable.
                await in_thread(self._store.flush)
                self.ask()
            if wait_ms <= 0:
                await asyncio.sleep(0)  # more is to be read or due; others have their turn first
                continue
            await self._waits.until(
                [_HALVES],
                wait_ms / 1000,
                lambda: self._bounds(_HALVES)[1] > self._next_offset,
                is_urgent=False,
            )

    def check_due(self) -> int:
        """Read new half messages, and append due ones again; at most ``BATCH`` of each.

        :returns: the time of the next request, in ms since 1970; the past if more is to be done
        """
        now = self._clock()
        if self._read():
            return now
        if self._unread and now >= self._retry_at_ms:
            self._retry_at_ms = now + RETRY_MS
            for queue_offset, physical_offset in list(self._unread.items()):
                if self._deliverer.deliver(physical_offset, self._add):
                    self._unread.pop(queue_offset, None)
        for _ in range(BATCH):
            if not self._queue or self._queue[0][0] > now:
                break
            due_ms, offset = heapq.heappop(self._queue)
            waiting = self._open.get(offset)
            if waiting is not None and waiting.due_ms == due_ms:
                self._check(offset, waiting)
        first = self._queue[0][0] if self._queue else now + _LONGEST_WAIT_MS
        return min(first, self._retry_at_ms) if self._unread else first

    def _read(self) -> bool:
        """Read at most ``BATCH`` half messages; whether there were any."""
        low, high = self._bounds(_HALVES)
        self._next_offset = min(max(self._next_offset, low), high)
        if self._next_offset == high or len(self._unread) >= MAX_DEFERRED:
            return False
        units = self._store.queue_units(*_HALVES, self._next_offset, BATCH)
        columns = units.queue_offsets.tolist(), units.offsets.tolist()
        for queue_offset, physical_offset in zip(*columns, strict=True):
            self._next_offset = queue_offset + 1
            if queue_offset in self._ended or queue_offset in self._open:
                continue
            if not self._deliverer.deliver(physical_offset, self._add):
                self._unread[queue_offset] = physical_offset
        return True

    def _add(self, stored: StoredMessage) -> None:
        offset, properties = stored.queue_offset, stored.properties_bytes
        first_text = property_value(properties, b"TRAN_PREPARED_QUEUE_OFFSET")
        first = offset if first_text is None else int(first_text)
        if first != offset:  # it was appended again; the former one does not count
            self._open.pop(self._current.get(first, first), None)
            self._current[first] = offset
        if property_value(properties, b"TRANSACTION_CHECK_TIMES") is None:
            due_ms = stored.born_timestamp_ms + self._immunity_ms(properties)
        else:
            due_ms = stored.store_timestamp_ms + self._interval_ms
        self._wait(offset, _Open(stored.physical_offset, first, due_ms))

    def _wait(self, offset: int, waiting: _Open) -> None:
        waiting.due_ms = min(waiting.due_ms, self._clock() + _RENEW_MS)
        self._open[offset] = waiting
        heapq.heappush(self._queue, (waiting.due_ms, offset))

    @property
    def _interval_ms(self) -> int:
        return int(self._settings.transaction_check_interval_s * 1000)

    def _immunity_ms(self, properties: bytes) -> int:
        """The age of a half message at the first request."""
        given = property_value(properties, b"CHECK_IMMUNITY_TIME_IN_SECONDS") or b""
        if given.isdigit():
            return int(given) * 1000
        return int(self._settings.transaction_timeout_s * 1000)

    def _check(self, offset: int, waiting: _Open) -> None:
        def check(stored: StoredMessage) -> None:
            self._check_one(offset, waiting, stored)

        if not self._deliverer.deliver(waiting.physical_offset, check):
            waiting.due_ms = self._clock() + RETRY_MS
            self._wait(offset, waiting)
        elif offset in self._open and self._open[offset] is waiting:
            del self._open[offset]  # damaged: it cannot be committed either

    def _check_one(self, offset: int, waiting: _Open, stored: StoredMessage) -> None:
        properties, now = stored.properties_bytes, self._clock()
        times = int(property_value(properties, b"TRANSACTION_CHECK_TIMES") or 0)
        if times >= self._settings.transaction_check_limit:
            self._give_up(stored, times)
            self._put_end(offset)
            return
        first_ms = stored.born_timestamp_ms + self._immunity_ms(properties)
        is_asked = times > 0 or now >= first_ms
        added = {"TRAN_PREPARED_QUEUE_OFFSET": str(waiting.first_offset)}
        if is_asked:
            added["TRANSACTION_CHECK_TIMES"] = str(times + 1)
        put = self._appender.put_again(stored, **added)
        self._put_end(offset)  # or a restart before the next save would ask about it too
        self._current[waiting.first_offset] = put.queue_offset
        due_ms = now + self._interval_ms if is_asked else first_ms
        self._wait(put.queue_offset, _Open(put.physical_offset, waiting.first_offset, due_ms))
        if is_asked:
            self._to_ask.append(
                attrs.evolve(
                    stored,
                    queue_offset=put.queue_offset,
                    physical_offset=put.physical_offset,
                    store_timestamp_ms=put.store_timestamp_ms,
                    properties_bytes=with_properties(properties, (), **added),
                )
            )

    def ask(self) -> None:
        """Ask a producer of its group about each half message that was appended again."""
        halves, self._to_ask = self._to_ask, []
        for half in halves:
            producers = self._members.producers(group_of(half))
            if not producers:
                continue  # asked again after the interval
            self._turn += 1
            try:
                producers[self._turn % len(producers)].peer.check_transaction(half)
            except Exception:  # noqa: BLE001  # of one client; it is asked again as well
                _LOG.exception("a producer of %r could not be asked", group_of(half))

    def _give_up(self, stored: StoredMessage, times: int) -> None:
        _LOG.warning(
            "the transaction at offset %d of the log has no outcome after %d requests to the group "
            "%r; its message is put into %s",
            stored.physical_offset,
            times,
            group_of(stored),
            GIVEN_UP_TOPIC,
        )
        self._appender.put_real(stored, topic=GIVEN_UP_TOPIC, queue_id=0)

    # --- progress ---

    def _bounds(self, queue: tuple[str, int]) -> tuple[int, int]:
        return self._store.queue_bounds(*queue) or (0, 0)

    def note_progress(self) -> None:
        """Set the offsets of the group; the log must be durable before they are saved."""
        lowest = min([self._next_offset, *self._unread, *self._open])
        while self._ends and self._ends[0][1] < lowest:
            self._ended.discard(self._ends.popleft()[1])
        ends = self._ends[0][0] if self._ends else self._bounds(_ENDS)[1]
        for queue, offset in ((_HALVES, lowest), (_ENDS, ends)):
            if self._offsets.get(GROUP, *queue) != offset:
                self._offsets.set(GROUP, *queue, offset)


def group_of(half: StoredMessage) -> str:
    """The producer group of a half message."""
    return (property_value(half.properties_bytes, b"PGROUP") or b"").decode()
