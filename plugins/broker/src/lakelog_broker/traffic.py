"""Counts of messages that are put and read, and their rates of the last minute, hour and day.

Source: RocketMQ 5.3.3, ``StatsItem`` and ``BrokerStatsManager``.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs

from lakelog_broker.state import check_length
from lakelog_queues.finding.results import QueueInfo

SAMPLE_INTERVAL_S: Final = 10
TOPIC_PUT: Final = "TOPIC_PUT_NUMS"
GROUP_GET: Final = "GROUP_GET_NUMS"
BROKER_PUT: Final = "BROKER_PUT_NUMS"
BROKER_GET: Final = "BROKER_GET_NUMS"
TIMER_GET: Final = "TIMER_GET_NUMS"
MINUTE: Final = "minute"
HOUR: Final = "hour"
DAY: Final = "day"
_MAX_READS: Final = 100_000
"""Most queues of groups whose last read is noted; a further one replaces the oldest."""
_WINDOWS: Final = {MINUTE: (60, SAMPLE_INTERVAL_S), HOUR: (3600, 600), DAY: (86400, 3600)}
"""Length of each window and the interval of its samples, in s; as RocketMQ's ``StatsItem``."""


@attrs.frozen
class Rate:
    """The growth of a count in a window.

    :ivar count: the growth
    :ivar per_second: the growth per second
    """

    count: int
    per_second: float


@attrs.frozen
class _Sample:
    time_s: float
    counts: Mapping[tuple[str, str], int]


class Traffic:
    """Counts of messages; used from one event loop.

    The number of messages put into a topic is the growth of its queues. So messages of the store's
    other writers count, and a send needs no counting. Messages read by a group are counted by the
    requests that read.

    :ivar found: number of requests that read messages
    :ivar missed: number of requests that found none
    :ivar mornings: counts of put and read messages since the start of the broker, as of the last
        midnight but one, and as of the last midnight
    :param queues: returns all queues
    :param is_counted: whether a topic counts for the whole broker
    :param clock: returns the time in seconds since 1970
    :param timers: returns the number of delivered timer messages
    """

    def __init__(
        self,
        queues: Callable[[], Iterable[QueueInfo]],
        is_counted: Callable[[str], bool],
        clock: Callable[[], float] = time.time,
        timers: Callable[[], int] = lambda: 0,
    ) -> None:
        self._queues, self._is_counted, self._clock = queues, is_counted, clock
        self._timers = timers
        self._reads: Counter[tuple[str, str]] = Counter()
        self._pulled: dict[tuple[str, str, int], int] = {}
        self.found = self.missed = 0
        self._ends = self.topic_ends()
        first = _Sample(clock(), {})
        self._samples = {name: deque([first], 1 + s // i) for name, (s, i) in _WINDOWS.items()}
        self.mornings = ((0, 0), (0, 0))

    def note_read(
        self, group: str, topic: str, queue_id: int, next_offset: int, count: int
    ) -> None:
        """Count the messages of a response, and note the queue offset behind them.

        Raises :class:`Refused` for a new group with a name that RocketMQ refuses.
        """
        place = group, topic, queue_id
        if place not in self._pulled:
            check_length(group)
            if len(self._pulled) >= _MAX_READS:
                del self._pulled[next(iter(self._pulled))]
        self._pulled[place] = next_offset
        if count:
            self.found += 1
            self._reads[topic, group] += count
        else:
            self.missed += 1

    def pulled_offset(self, group: str, topic: str, queue_id: int) -> int:
        """The queue offset behind the messages last read by a group; 0 without any."""
        return self._pulled.get((group, topic, queue_id), 0)

    def forget(self, group: str) -> None:
        """Remove the counts of a group."""
        for place in [each for each in self._pulled if each[0] == group]:
            del self._pulled[place]
        for key in [each for each in self._reads if each[1] == group]:
            del self._reads[key]

    def sample(self, ends: Mapping[str, int] | None = None) -> None:
        """Store the present counts for later rates; called every ``SAMPLE_INTERVAL_S`` seconds.

        :param ends: the result of :meth:`topic_ends`, which is slow with many queues
        """
        now = _Sample(self._clock(), self.counts(ends))
        last = self._samples[MINUTE][-1]
        if time.localtime(last.time_s).tm_yday != time.localtime(now.time_s).tm_yday:
            total = now.counts.get((BROKER_PUT, ""), 0), now.counts.get((BROKER_GET, ""), 0)
            self.mornings = self.mornings[1], total
        for name, (_, interval_s) in _WINDOWS.items():
            if now.time_s - self._samples[name][-1].time_s >= interval_s:
                self._samples[name].append(now)

    def counts(self, ends: Mapping[str, int] | None = None) -> dict[tuple[str, str], int]:
        """All nonzero counts since the start, by the name of a statistic and its key."""
        found = Counter({(TIMER_GET, ""): self._timers()})
        for topic, end in (self.topic_ends() if ends is None else ends).items():
            put = end - self._ends.get(topic, 0)
            found[TOPIC_PUT, topic] += put
            if self._is_counted(topic):
                found[BROKER_PUT, ""] += put
        for (topic, group), count in self._reads.items():
            found[GROUP_GET, f"{topic}@{group}"] += count
            if self._is_counted(topic):
                found[BROKER_GET, ""] += count
        return +found

    def rates(self, name: str, key: str = "") -> dict[str, Rate] | None:
        """The growth of a count in the last minute, hour and day; ``None`` if the count is 0.

        A window is never longer than the time since the start of the broker.
        """
        now_s, present = self._clock(), self.counts().get((name, key), 0)
        if not present:
            return None
        return {
            window: _rate(samples[0], now_s, present, (name, key))
            for window, samples in self._samples.items()
        }

    def recent_rates(self, name: str, key: str = "") -> list[float]:
        """The rates per second of the last 10 seconds, the last minute, and the last 10 minutes."""
        now_s, present = self._clock(), self.counts().get((name, key), 0)
        minute, hour = self._samples[MINUTE], self._samples[HOUR]
        former = minute[-1], minute[0], hour[-1]
        return [_rate(each, now_s, present, (name, key)).per_second for each in former]

    def topic_ends(self) -> Counter[str]:
        """The sum of the end offsets of each topic's queues; may be called in any thread."""
        ends = Counter[str]()
        for queue in self._queues():
            ends[queue.topic] += queue.max_offset
        return ends


def _rate(former: _Sample, now_s: float, present: int, key: tuple[str, str]) -> Rate:
    count = present - former.counts.get(key, 0)
    return Rate(count, count / max(1.0, now_s - former.time_s))
