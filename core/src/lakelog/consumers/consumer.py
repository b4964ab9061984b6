"""A consumer: one member of a group, which reads some queues of a topic and remembers the place.

Delivery is at least once: what was returned and not committed before a crash comes again. Members
of a group must read different queues; lakelog does not divide them. One thread uses a consumer at
a time, but :meth:`Consumer.close` may come from any.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final, Literal, TypeAlias

from lakelog.consumers.fetching import Fetched, Fetching
from lakelog.consumers.names import offsets_name
from lakelog.consumers.places import EARLIEST, LATEST, Place, check_place, find, within
from lakelog.consumers.queueaccess import QueueAccess
from lakelog.errors import SettingsError, StoreClosed, StoreReadOnly
from lakelog.files.state.group_offsets import Offsets
from lakelog.message import StoredMessage
from lakelog.reading.tagfilter import tag_filter
from lakelog.runtime.arguments import WrongValue, span_ms, whole, wrong_type

CommitPolicy: TypeAlias = Literal["explicit", "batch"]

BATCH_MESSAGES: Final = 32
_RELIST_S: Final = 1.0
"""How often a consumer of all queues looks for new ones while it finds messages."""
_NAP_S: Final = 0.5
"""How soon a waiting consumer notices that it was closed."""


class Consumer:
    """Made by ``Store.consumer``; reads messages in the order of each queue.

    :ivar group: whose offsets it keeps
    :ivar topic: what it reads
    """

    def __init__(
        self,
        group: str,
        topic: str,
        queue_ids: Sequence[int] | None,
        access: QueueAccess,
        offsets: Offsets,
        *,
        start: Place = LATEST,
        commit: CommitPolicy = "explicit",
        tags: str | None = None,
    ) -> None:
        """Find the place in each queue: what the group committed, or else ``start``.

        :param queue_ids: the queues to read; ``None`` is all of them, those to come included
        :param start: where a queue begins for which the group committed nothing. Where a consumer
            of all queues meets a queue that was made after the group had begun, it begins with
            its first message.
        :param commit: ``explicit``: by :meth:`commit` only; ``batch``: what a poll returned is
            committed when the next one begins, and at close

        Raises :class:`~lakelog.errors.SettingsError`, and ``StoreReadOnly`` for ``batch`` in a
        store that is open for reading; ``TypeError`` for arguments of a wrong type, and
        ``ValueError`` for tags without one.
        """
        offsets_name(topic, group)
        _check(commit, queue_ids, offsets)
        tag_filter(topic, tags)
        self.group = group
        self.topic = topic
        self._all_queues = queue_ids is None
        self._access = access
        self._offsets = offsets
        self._start = check_place(start)
        self._by_batch = commit == "batch"
        self._fetching = Fetching(access, topic, tags)
        self._waiting: deque[Fetched] = deque()
        self._delivered: dict[int, int] = {}
        self._committed = offsets.committed(group, topic)
        self._known = self._all_queues and bool(self._committed)
        self._closed = False
        self._listed_at = 0.0
        self._take_in(access.queues(topic) if queue_ids is None else queue_ids)
        self._known = self._all_queues

    # --- reading ---

    def poll(self, max_messages: int = BATCH_MESSAGES, wait_ms: float = 0) -> list[StoredMessage]:
        """The next messages, of all queues in turn.

        :param wait_ms: how long to wait for the first of them
        :returns: at most ``max_messages``, none if there are none in time
        """
        max_messages, wait_ms = whole("max_messages", max_messages, 1), span_ms("wait_ms", wait_ms)
        self._begin()
        if not self._waiting:
            self._fill(max_messages, wait_ms)
        count = min(max_messages, len(self._waiting))
        found = [self._waiting.popleft() for _ in range(count)]
        self._deliver(*found)
        self._settle()
        return [each.message for each in found]

    def messages(self, *, follow: bool = True) -> Iterator[StoredMessage]:
        """One message after the other.

        A message counts as delivered once it was yielded; with ``commit="batch"`` it is committed
        when its successors are fetched.

        :param follow: wait for more at the end, until the consumer or its store is closed
        """
        while not self._closed:
            if not self._waiting:
                self._begin()
                self._fill(BATCH_MESSAGES, _NAP_S * 1000 if follow else 0)
            if not self._waiting:
                self._settle()
                if not follow or self._is_over():
                    return
                continue
            next_one = self._waiting.popleft()
            self._deliver(next_one)
            self._settle()
            yield next_one.message

    def fetch(self, max_messages: int = BATCH_MESSAGES) -> bool:
        """Have messages ready for :meth:`take`; whether there are any."""
        if not self._waiting:
            self._begin()
            self._fill(max_messages, 0)
        if not self._waiting:
            self._settle()
        return bool(self._waiting)

    def take(self) -> StoredMessage | None:
        """The next message that is ready, which counts as delivered now; touches no file."""
        if not self._waiting:
            return None
        found = self._waiting.popleft()
        self._deliver(found)
        self._settle()
        return found.message

    def __iter__(self) -> Iterator[StoredMessage]:
        """All messages, and then those that come, until the consumer is closed."""
        return self.messages()

    def _begin(self) -> None:
        if self._closed:
            raise StoreClosed(f"the consumer of group {self.group!r} is closed")
        if self._by_batch:
            self.commit()

    def _fill(self, max_messages: int, wait_ms: float) -> None:
        """Fetch; wait if there is nothing."""
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            seen = self._access.arrivals.version
            self._relist(time.monotonic())
            self._waiting.extend(self._fetching.fetch(max_messages))
            left = deadline - time.monotonic()
            if self._waiting or left <= 0 or self._is_over():
                return
            self._listed_at = 0.0
            self._access.arrivals.wait(seen, min(left, _NAP_S))

    def _is_over(self) -> bool:
        """Whether it is of no use to wait for more."""
        return self._closed or self._access.arrivals.closed

    def _deliver(self, *fetched: Fetched) -> None:
        for each in fetched:
            self._delivered[each.queue_id] = each.next_offset

    def _settle(self) -> None:
        """With nothing waiting, everything that was passed over counts as delivered too."""
        if not self._waiting:
            self._delivered.update(self._fetching.positions)

    # --- places ---

    def position(self, queue_id: int) -> int:
        """The queue offset behind the last message that was delivered."""
        self._check_queue(queue_id)
        return self._delivered[queue_id]

    def seek(self, queue_id: int, offset: int) -> None:
        """Go on elsewhere in a queue; nothing is committed.

        An offset beyond the queue's ends is corrected by the next poll, as in RocketMQ.
        """
        self._check_queue(queue_id)
        offset = whole("offset", offset)
        self._waiting = deque(each for each in self._waiting if each.queue_id != queue_id)
        self._delivered[queue_id] = self._fetching.positions[queue_id] = offset

    def reset(self, to: Place | int) -> None:
        """Go elsewhere in every queue, and commit that.

        :param to: ``earliest``, ``latest``, a time with its time zone, or a queue offset; of
            places beyond a queue's ends, the nearest end

        Raises :class:`~lakelog.errors.SettingsError` for what is no place, ``ValueError`` for an
        offset below 0.
        """
        if isinstance(to, int):
            whole("to", to)
        else:
            check_place(to, "to")
        for queue_id in self._fetching.positions:
            self.seek(queue_id, self._find(queue_id, to))
        self.commit()

    def _find(self, queue_id: int, to: Place | int) -> int:
        if isinstance(to, int):
            return within(to, self._access.bounds(self.topic, queue_id))
        return find(self._access, self.topic, queue_id, to)

    def lag(self) -> dict[int, int]:
        """By queue id: how many messages were not delivered yet; sum the values for all queues.

        Messages that were deleted before they were read do not count.
        """
        return {queue: self._lag(queue, at) for queue, at in sorted(self._delivered.items())}

    def _lag(self, queue_id: int, offset: int) -> int:
        bounds = self._access.bounds(self.topic, queue_id)
        return 0 if bounds is None else max(0, bounds[1] - max(bounds[0], offset))

    def _check_queue(self, queue_id: int) -> None:
        if queue_id not in self._fetching.positions:
            known = ", ".join(map(str, sorted(self._fetching.positions))) or "none"
            raise WrongValue(f"this consumer does not read queue {queue_id}, but {known}")

    def _relist(self, now_s: float) -> None:
        """Now and then, look for queues that are new."""
        if self._all_queues and now_s - self._listed_at >= _RELIST_S:
            self._listed_at = now_s
            self._take_in(self._access.queues(self.topic))

    def _take_in(self, queue_ids: Sequence[int]) -> None:
        self._fetching.add(queue_ids, self._first_place)
        for queue_id, offset in self._fetching.positions.items():
            self._delivered.setdefault(queue_id, offset)

    def _first_place(self, queue_id: int) -> int:
        if queue_id in self._committed:
            return self._committed[queue_id]
        start = EARLIEST if self._known and self._start == LATEST else self._start
        return find(self._access, self.topic, queue_id, start)

    # --- committing ---

    def commit(self) -> None:
        """Keep the place of every queue: behind what was delivered.

        Returns when that is durable (or, with ``commit_interval_ms``, soon will be). An attached
        store has its owner do it; over the owner's death it goes on with the next one.

        Raises :class:`~lakelog.errors.StoreReadOnly`, and ``StoreError`` if the file cannot be
        written, or if the owner is gone and no other one comes; it can be tried again then.
        """
        changed = {
            queue: offset
            for queue, offset in self._delivered.items()
            if self._committed.get(queue) != offset
        }
        if changed or self._offsets.read_only:
            self._offsets.commit(self.group, self.topic, changed)
            self._committed.update(changed)

    def committed(self) -> dict[int, int]:
        """By queue id: the next offset that the group committed, as the store has it now."""
        return self._offsets.committed(self.group, self.topic)

    def close(self) -> None:
        """End reading; with ``commit="batch"``, commit what was delivered."""
        self._end(commit=self._by_batch)

    def _end(self, *, commit: bool) -> None:
        if not self._closed:
            self._closed = True
            if commit:
                self.commit()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an error, without a commit, so that the batch comes again."""
        self._end(commit=self._by_batch and kind is None)


def _check(commit: str, queue_ids: Sequence[int] | None, offsets: Offsets) -> None:
    if commit not in ("explicit", "batch"):
        raise SettingsError(f"{commit!r} is unknown; give 'explicit' or 'batch'", key="commit")
    if queue_ids is not None:
        _check_queues(queue_ids)
    if commit == "batch" and offsets.read_only:
        raise StoreReadOnly(
            "a consumer cannot commit in a store that is open for reading; use commit='explicit', "
            "or open it with mode='write'"
        )


def _check_queues(queue_ids: Sequence[int]) -> None:
    if isinstance(queue_ids, str | bytes) or not isinstance(queue_ids, Iterable):
        raise wrong_type("queue_ids", queue_ids, "a list of queue ids, or None for all")
    ids = [whole("queue_ids", each, None) for each in queue_ids]
    if not ids or min(ids) < 0:
        raise SettingsError(
            f"{ids} are no queues; give ids from 0 on, or None for all", key="queue_ids"
        )
