"""Limits of the connections of a port, and of the lines that they cause in the log.

A port asks :class:`ConnectionLimits` to admit a connection before it serves it. If there are too
many, the one of least use ends for the new one: strangers who merely connect, or read nothing, keep
no client away. Peers never have the descriptors that the log needs.
"""

from __future__ import annotations

import logging
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

import attrs

_OF_THE_LOG: Final = 640
"""Descriptors of queues, segments and the process itself; see ``MOST_OPEN`` of their modules."""
_UNLIMITED: Final = 1 << 20
_STALLED_S: Final = 1.0
_QUIET_S: Final = 1.0
_GRACE_S: Final = 0.1
_MOST_GRACE_S: Final = 5.0
"""The grace of a peer whose bytes wait to be read."""
_LOOKED_AT: Final = 32
_LINE_INTERVAL_S: Final = 60.0
_MOST_KINDS: Final = 100


def descriptors_for_peers() -> int:
    """How many descriptors all peers of this process may have (``ulimit -n``).

    A tenth of the limit is left free, and so is what the log needs, up to half of the limit.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most == resource.RLIM_INFINITY:
        most = _UNLIMITED
    return max(1, most - most // 10 - min(_OF_THE_LOG, most // 2))


class RareLines:
    """Logs one warning a minute of each kind, with the number of those left out before it."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._kinds: dict[str, tuple[float, int]] = {}

    def warning(self, text: str, *arguments: object, kind: str = "") -> None:
        """Log a line, unless one of its kind, by default its ``text``, came within a minute."""
        now_s, kind = self._clock(), kind or text
        begun_s, left_out = self._kinds.get(kind, (-_LINE_INTERVAL_S, 0))
        if now_s - begun_s < _LINE_INTERVAL_S:
            self._kinds[kind] = begun_s, left_out + 1
            return
        if len(self._kinds) >= _MOST_KINDS:
            self._kinds.clear()
        self._kinds[kind] = now_s, 0
        if left_out:
            text = f"{text} (and {left_out} more)"
        self._log.warning(text, *arguments)


@attrs.define(eq=False)
class Admission:
    """The place of one connection.

    :ivar address: the peer's IP address
    :ivar end: ends the connection soon, without waiting; called once at most
    :ivar descriptors: how many the connection has
    :ivar since_s: when the peer connected, or was last heard; seconds of the clock
    :ivar is_heard: whether bytes came since the last :meth:`ConnectionLimits.end_overdue`
    :ivar is_proven: whether the peer has sent a whole request, with its signature if it needs one
    :ivar stalled_s: since when the peer does not read; ``None`` if it reads
    :ivar waiting: number of its requests that wait for their answers
    :ivar held_bytes: length of its unfinished requests and unread answers
    :ivar has_unread: returns whether bytes of the peer came that were not read yet
    :ivar grace_s: time for its first request, before it ends for another connection
    """

    address: str
    end: Callable[[], object]
    descriptors: int
    since_s: float
    is_heard: bool = False
    is_proven: bool = False
    stalled_s: float | None = None
    waiting: int = 0
    held_bytes: int = 0
    has_unread: Callable[[], bool] = bool
    grace_s: float = _GRACE_S

    def use(self, now_s: float) -> tuple[int, float] | None:
        """Its rank and its age: the place with the least ends first; ``None`` is a place in use."""
        if not self.is_proven:
            return -1, self.since_s
        if self.stalled_s is not None and now_s - self.stalled_s >= _STALLED_S:
            return 0, self.stalled_s
        if not (self.is_heard or self.waiting) and now_s - self.since_s >= _QUIET_S:
            return 1, self.since_s
        return None

    def is_silent(self, now_s: float) -> bool:
        """Whether nothing of the peer is to be read, or has been for too long."""
        return now_s - self.since_s >= _MOST_GRACE_S or not self.has_unread()


@attrs.define(eq=False, kw_only=True)
class ConnectionLimits:
    """Counts the connections of some ports; for one thread at a time.

    :ivar most: connections
    :ivar most_of_address: connections of one address; without one, an address with more than half
        of all gives one up for another address
    :ivar most_descriptors: returns how many descriptors the connections may have
    :ivar most_held_bytes: unfinished requests and unread answers; beyond it, the connection with
        most of them ends
    :ivar first_request_s: longest time until the first whole request
    :ivar idle_s: longest time without a byte of the peer, and in which it reads nothing
    :ivar lines: logs what ended
    :ivar places: those that are taken, in the order of their connections
    :ivar waiting: number of requests that wait for their answers
    """

    most: int
    most_of_address: int | None = None
    most_descriptors: Callable[[], int] = descriptors_for_peers
    most_held_bytes: int = 1 << 62
    first_request_s: float
    idle_s: float
    lines: RareLines
    clock: Callable[[], float] = time.monotonic
    places: dict[Admission, None] = attrs.field(factory=dict, init=False)
    waiting: int = attrs.field(default=0, init=False)
    _unproven: dict[Admission, None] = attrs.field(factory=dict, init=False)
    _of_address: Counter[str] = attrs.field(factory=Counter, init=False)
    _descriptors: int = attrs.field(default=0, init=False)
    _held_bytes: int = attrs.field(default=0, init=False)

    def admit(self, address: str, end: Callable[[], object]) -> Admission | None:
        """Take a place for a new connection with one descriptor; ``None`` if it is refused."""
        most = self.most_of_address
        if most is not None and self._of_address[address] >= most:
            oldest = self._least_of(self._all_of(address))
            if oldest is None:
                self.lines.warning(
                    "%s is refused: it has %d connections (max_connections_per_address)",
                    *(address, most),
                )
                return None
            self._ended(oldest)
        while len(self.places) >= self.most or not self._have(1):
            if not self.make_room(address):
                text = "%s is refused: there are %d connections (max_connections, ulimit -n)"
                self.lines.warning(text, address, len(self.places))
                return None
        place = Admission(address, end, 1, self.clock())
        self.places[place] = self._unproven[place] = None
        self._of_address[address] += 1
        self._descriptors += 1
        return place

    def is_crowded(self) -> bool:
        """Whether a new connection should wait for some ms, as the others have just begun."""
        is_full = len(self.places) >= self.most or not self._have(1)
        return is_full and bool(self._unproven) and self._least() is None

    def _have(self, descriptors: int) -> bool:
        return self._descriptors + descriptors <= self.most_descriptors()

    def take_descriptors(self, place: Admission, count: int) -> bool:
        """Give a connection more descriptors; ``False`` if there are none left for it now."""
        while not self._have(count):
            found = self._least(place)
            if place not in self.places or found is None:
                return False
            self._ended(found)
        place.descriptors += count
        self._descriptors += count
        return True

    def make_room(self, address: str) -> bool:
        """End the connection of least use, for one of ``address``; ``False`` without such a one."""
        found = self._least() or next(iter(self._unproven), None)
        if found is None:
            heaviest, count = max(
                self._of_address.items(), key=lambda item: item[1], default=("", 0)
            )
            if heaviest == address or 2 * count <= len(self.places):
                return False
            found = min(self._all_of(heaviest), key=lambda each: each.since_s)
        self._ended(found)
        return True

    def _least(self, but: Admission | None = None) -> Admission | None:
        """The connection of least use, except for those that have just begun."""
        now_s = self.clock()
        had_time = (each for each in self._unproven if now_s - each.since_s >= each.grace_s)
        for each in islice(had_time, _LOOKED_AT):
            if each is not but and each.is_silent(now_s):
                return each
        proven = (each for each in self.places if each.is_proven and each is not but)
        return self._least_of(proven)

    def _all_of(self, address: str) -> list[Admission]:
        return [each for each in self.places if each.address == address]

    def _least_of(self, places: Iterable[Admission]) -> Admission | None:
        """The place of least use among some; ``None`` if all are in use."""
        now_s = self.clock()
        found = [(use, each) for each in places if (use := each.use(now_s)) is not None]
        return min(found, key=lambda one: one[0])[1] if found else None

    def _ended(self, place: Admission) -> None:
        self.lines.warning(
            "%s is disconnected for a new connection: it sent no whole request, does not read, or "
            "is idle; there are %d connections (max_connections, ulimit -n)",
            *(place.address, len(self.places)),
        )
        self._end(place)

    def _end(self, place: Admission) -> None:
        self.leave(place)
        place.end()

    def leave(self, place: Admission) -> None:
        """Give a place back; may be called again."""
        if place in self.places:
            del self.places[place]
            self._unproven.pop(place, None)
            self._of_address[place.address] -= 1
            if not self._of_address[place.address]:
                del self._of_address[place.address]
            self._descriptors -= place.descriptors
            self._held_bytes -= place.held_bytes

    def prove(self, place: Admission) -> None:
        """Note the first whole request of a peer."""
        place.is_proven = True
        self._unproven.pop(place, None)

    def stall(self, place: Admission, is_stalled: bool) -> None:
        """Note that a peer does not read, or reads again."""
        place.stalled_s = self.clock() if is_stalled else None

    def wait(self, place: Admission, change: int) -> None:
        """Note that ``change`` more requests wait; fewer, if it is negative."""
        place.waiting += change
        self.waiting += change

    def hold(self, place: Admission, length: int) -> None:
        """Note how many bytes of requests and answers are held for a peer."""
        if place not in self.places:
            return
        self._held_bytes += length - place.held_bytes
        place.held_bytes = length
        while self._held_bytes > self.most_held_bytes:
            largest = max(self.places, key=lambda each: each.held_bytes)
            text = "%s is disconnected: %d bytes are held for it, and %d for all"
            held = largest.held_bytes, self._held_bytes
            self.lines.warning(text, largest.address, *held)
            self._end(largest)

    def end_overdue(self) -> None:
        """End the connections that are silent for too long; to be called about once a second."""
        now_s = self.clock()
        for each in list(self.places):
            if each.is_heard and each.is_proven:
                each.is_heard, each.since_s = False, now_s
            most_s = self.idle_s if each.is_proven else self.first_request_s
            since_s = each.since_s if each.stalled_s is None else each.stalled_s
            if now_s - since_s >= most_s:
                self.lines.warning(
                    "%s is disconnected: it sent no whole request, read nothing, or was silent "
                    "for %g s",
                    *(each.address, most_s),
                )
                self._end(each)
