"""What a member has read of its queues before it is asked for, in the order of the log."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Final, TypeAlias

from lakelog.accelerate import current
from lakelog.format.queue_offsets import Queue
from lakelog.message import StoredMessage
from lakelog_queues.consumers import consumer
from lakelog_queues.finding.results import GetStatus, PlacedResult
from lakelog_queues.groups.leases import RESERVED, Delivery
from lakelog_queues.groups.options import GroupAccess, GroupOptions
from lakelog_queues.groups.state import GroupState
from lakelog_queues.groups.state_words import HEAD, NEXT, RUN, FreshMessages

_MOVES_ON: Final = frozenset(GetStatus) - {
    GetStatus.NO_MATCHED_LOGIC_QUEUE,
    GetStatus.NO_MESSAGE_IN_QUEUE,
    GetStatus.OFFSET_OVERFLOW_ONE,
}
_READ_AHEAD: Final = 64
"""Most messages of a queue that are read before they are asked for, if there are many queues."""
_AHEAD_BYTES: Final = 256 << 10
"""Their most bytes, by the size of the last message."""
MOST_RESERVED: Final = 256
"""Most messages that are taken in one turn, to be handed out without another one."""
_PHYSICAL, _AHEAD = itemgetter(0), itemgetter(1)
_physical_offset: Final = attrgetter("physical_offset")


class _Ahead:
    """What a member has read of a queue, and not handed out.

    :ivar place: of the queue in the state
    :ivar start: the next offset of the group, as far as the member knows
    :ivar offsets: those of the messages
    :ivar next: where reading continues
    :ivar last: offset in the log up to which the messages of the queue were read
    :ivar end: what :meth:`MergedQueues._arrived` was when there were no more; else ``None``
    """

    __slots__ = ("end", "last", "next", "offsets", "place", "queue", "start")

    def __init__(self, queue: Queue, place: int) -> None:
        self.queue, self.place = queue, place
        self.start = self.next = self.last = 0
        self.forget()

    def forget(self) -> None:
        """Read again."""
        self.offsets: list[int] = []
        self.end: object = None


_Read: TypeAlias = tuple[int, _Ahead, int, StoredMessage]
"""Offset in the log, queue, queue offset, and message."""


class Reserved:
    """Messages whose leases are taken, in the order of the log."""

    __slots__ = ("_at", "_number", "_places", "_rows")

    def __init__(self, rows: list[_Read], places: list[int], number: int) -> None:
        """The messages, the place of each one's lease, and the number of the hand-out."""
        self._rows, self._places, self._number, self._at = rows, places, number, 0

    def __bool__(self) -> bool:
        """Whether any is left."""
        return self._at < len(self._rows)

    def deliveries(self, most: int, taken_ms: int, visible_ms: int) -> list[Delivery]:
        """The next messages, as they are handed out for the first time; each once."""
        begin, end = self._at, min(self._at + most, len(self._rows))
        self._at = end
        accelerator, number = current(), self._number
        if accelerator is not None:
            return accelerator.deliveries(
                Delivery, self._rows, self._places, number, begin, end, taken_ms, visible_ms
            )
        rows = zip(self._rows[begin:end], self._places[begin:end], strict=True)
        return [
            Delivery(
                *(message, *ahead.queue, offset, message.reconsume_times + 1),
                *(taken_ms, visible_ms, (place, number, offset)),
            )
            for (_, ahead, offset, message), place in rows
        ]


NOTHING_RESERVED: Final = Reserved([], [], 0)


def _runs_of(chosen: list[_Read]) -> dict[_Ahead, list[int]]:
    """The offsets in each queue."""
    counts = Counter(map(_AHEAD, chosen))
    return {ahead: ahead.offsets[:count] for ahead, count in counts.items()}


def _most_leases(offsets: list[int]) -> int:
    return min((offsets[-1] - offsets[0]) // RUN + 1, len(offsets))


class MergedQueues:
    """The messages that a member has read; not thread-safe.

    :ivar ready: how many of them may be taken in the order of the log
    :ivar places: those of its queues in the state
    """

    def __init__(self, options: GroupOptions, access: GroupAccess, state: GroupState) -> None:
        """Read nothing yet."""
        self._options, self._access, self._state = options, access, state
        self._listed_at: object = None
        self._record_bytes = _AHEAD_BYTES
        self.assign({})

    def assign(self, queues: Mapping[Queue, int]) -> None:
        """Read other queues: the place of each in the state."""
        self._queues = [_Ahead(queue, place) for queue, place in queues.items()]
        self.places = list(queues.values())
        self.forget()

    @property
    def queues(self) -> list[Queue]:
        """The queues that are read."""
        return [each.queue for each in self._queues]

    def _arrived(self) -> tuple[int, int]:
        """Differs from before if there may be more messages; the second is the end of the log."""
        return self._access.queues.arrivals.version, self._access.end()

    def forget(self) -> None:
        """Read again what was not taken."""
        self._line: list[_Read] = []
        self.ready = 0
        for each in self._queues:
            each.forget()

    def fill(self, most: int, list_queues: Callable[[], bool]) -> None:
        """Read on in each queue of which little is left, until messages are ready.

        Messages up to the place in the log up to which all queues were read are ready.

        :param list_queues: called at the end of all queues; whether it called :meth:`assign`. Not
            an attribute: a consumer that is dropped is no member at once
        """
        before: object = None
        while True:
            arrived, has_read = self._read_all(most)
            if self._line:
                self._line.sort(key=_PHYSICAL)
                self.ready = len(self._line)
                if not self._options.orderly and arrived != before:
                    horizon = min(each.last for each in self._queues)
                    self.ready = bisect_right(self._line, horizon, key=_PHYSICAL)
                if self.ready:
                    return
            elif not has_read:
                arrived = arrived or self._arrived()
                if arrived == self._listed_at:
                    return
                self._listed_at = arrived
                if not list_queues():
                    return
            before = arrived

    def _read_all(self, most: int) -> tuple[tuple[int, int] | None, bool]:
        """Read each queue of which little is left; returns :meth:`_arrived`, and what changed."""
        words, orderly = self._state.file.words, self._options.orderly
        count, little = -(-most // max(len(self._queues), 1)), 0
        if not orderly:
            little = _READ_AHEAD // 8
            most_ahead = max(_READ_AHEAD, MOST_RESERVED // max(len(self._queues), 1))
            count = max(count, min(most_ahead, _AHEAD_BYTES // self._record_bytes))
        arrived, has_read = None, False
        for each in self._queues:
            left = len(each.offsets)
            if left <= little and not (orderly and words[each.place + HEAD]):
                arrived = arrived or self._arrived()
                is_moved = not left and each.next != words[each.place + NEXT]
                if each.end != arrived or is_moved:
                    has_read |= self._read(each, count, arrived)
        return arrived, has_read

    def _read(self, ahead: _Ahead, count: int, arrived: tuple[int, int]) -> bool:
        """Read messages of a queue; returns whether it has any, or moved on."""
        offset = ahead.next if ahead.offsets else self._state.file.words[ahead.place + NEXT]
        result = self._get(ahead.queue, offset, count)
        consumer.warn_if_corrected(result, ahead.queue, offset, f"group {self._options.group}")
        next_offset = min(result.next_offset, result.max_offset)  # after OFFSET_FOUND_NULL
        if result.status not in _MOVES_ON or next_offset == offset:
            ahead.end, ahead.next, ahead.last = arrived, offset, arrived[1]
            return False
        if not ahead.offsets:
            ahead.start = offset
        ahead.next = next_offset
        ahead.end = arrived if next_offset == result.max_offset else None
        if ahead.end is not None:
            ahead.last = arrived[1]
        if not result.messages:
            if ahead.offsets:
                return True
            fresh = FreshMessages(ahead.place, offset, next_offset, ())
            self._state.take([fresh], 0, 0, orderly=False)
            ahead.end = None
            return True
        ahead.offsets += result.queue_offsets
        messages = result.messages
        self._line += zip(
            map(_physical_offset, messages), repeat(ahead), result.queue_offsets, messages
        )
        last = messages[-1]
        self._record_bytes = max(last.size, 1)
        if ahead.end is None:
            ahead.last = last.physical_offset
        return True

    def _get(self, queue: Queue, offset: int, most: int) -> PlacedResult:
        get = partial(self._access.get, *queue, offset, tags=self._options.all_topics[queue[0]])
        chosen = self._options.filter
        if chosen is None or queue[0] not in self._options.topics:  # retries were chosen before
            return get(most)
        return chosen.read(get, most)

    def take(self, most: int, number: int, until_ms: int) -> Reserved:
        """Take leases of messages that are ready; without those that another member has taken.

        They are few if they would need too many leases, and there may be none.

        :param number: identifies the hand-out
        :param until_ms: the end of the invisible time, in ms since boot
        """
        chosen = self._line[: min(self.ready, most)]
        runs = _runs_of(chosen)
        while sum(map(_most_leases, runs.values())) > RESERVED and len(chosen) > 1:
            del chosen[len(chosen) // 2 :]
            runs = _runs_of(chosen)
        del self._line[: len(chosen)]
        self.ready -= len(chosen)
        fresh = []
        for ahead, offsets in runs.items():
            del ahead.offsets[: len(offsets)]
            after = ahead.offsets[0] if ahead.offsets else ahead.next
            fresh.append(FreshMessages(ahead.place, ahead.start, after, offsets))
            ahead.start = after
        if self._options.orderly:
            taken = self._state.take(fresh, number, until_ms, orderly=True)
        else:
            taken = self._state.reserve(fresh, number, until_ms)
        places: dict[_Ahead, Iterator[int]] = {}
        for ahead, leases in zip(runs, taken, strict=True):
            if leases is None:
                ahead.forget()
                self._line = [each for each in self._line if each[1] is not ahead]
                self.ready = 0
                chosen = [each for each in chosen if each[1] is not ahead]
            else:
                places[ahead] = iter(leases)
        return Reserved(chosen, [next(places[each[1]]) for each in chosen], number)
