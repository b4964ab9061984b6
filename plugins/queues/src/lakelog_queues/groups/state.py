"""The state of a group: its members, its progress in each queue, and the leases of messages.

A hand-out of messages of one queue is one lease: a run of at most 64 offsets, with a bit for each
that is acknowledged. It is freed once all bits are set. A message that was returned, and a part of
a lease that was handed out again, get leases of their own before the one from which they come. The
leases of a queue are a list, ordered by the first offset of the hand-out from which they come. So
the committed offset is found at its begin::

    lease   number of the hand-out (1: nobody has it; 0: the slot is no lease) | first offset
            acknowledged bits | deadline | member, place of its reserve | kind | previous | next
    member  0 | number | process id | last activity | withdrawals | first reserve | | next
    reserve 0 | lease (0: none) | deadline | bits handed out | bits acknowledged | begin | | next
    queue   0 | queue id, length of the topic | next offset | committed | intended to be committed
            first lease | last lease | lower bound of deadlines
            0 | next queue | whether it counts; then the topic, 56 bytes in each slot

Times are in ms since boot, and places are numbers of words. Each change leaves a valid state. A
lease whose member is not in the list of members is due at once.

A member takes leases of messages before they are polled, each with a reserve, and then hands them
out and acknowledges them without the lock: only that member writes its reserves, and a lock of its
process separates its threads. In the turn, any member may make such a lease an ordinary one: it
counts the withdrawal in the entry of the member, which looks at that number before and after it
writes. Messages that were not handed out are then as if never taken.

The committed offsets in RocketMQ's file are compared with those noted here. Offsets that a member
writes are noted as intended before, so that after a kill between the write and the second note they
do not look like those of another program.
"""

from __future__ import annotations

import logging
import os
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import attrs

from lakelog.errors import SettingsError
from lakelog.files.filesystem import FileSystem, read_file
from lakelog.format.layout import OWN_DIR
from lakelog.format.queue_offsets import Queue
from lakelog.hooks import DispatchedLog
from lakelog.processes.locks import fence_all
from lakelog_queues.consumers.offsettable import CurrentOffsets
from lakelog_queues.groups.state_file import (
    CLEAN,
    FIRST_SLOT,
    GENERATION,
    GROUPS_DIR,
    MEMBERS,
    NEXT_MEMBER,
    NONE,
    QUEUE_COUNT,
    QUEUES,
    SLOT,
    SUBSCRIPTION,
    USED,
    StateFile,
    StateOpening,
    existing,
    redo,
)

_NOBODY: Final = 1
RUN: Final = 64
"""Longest run of offsets in one lease."""
# Words of a lease.
_START, _ACKED, _DEADLINE, _MEMBER, _KIND, _BEFORE, _AFTER = range(1, 8)
# Words of a member.
_NUMBER, _PID, _SEEN, _WITHDRAWALS, _RESERVES = range(1, 6)
# Words of a reserve.
_LEASE, _UNTIL, _HANDED, _ACKS, _BEGUN = range(1, 6)
_MOST_RESERVES: Final = 64
RESERVED: Final = 32
"""Most leases that :meth:`GroupState.reserve` takes."""
_TOGETHER_MS: Final = 100
"""Hand-outs from one lease, of messages that are not acknowledged, lie within this time."""
# Words of a queue.
_ID, NEXT, _STORED, _INTENDED, HEAD, _TAIL, DUE, _, _CHAIN, _COUNTS = range(1, 11)
_NAME_AT: Final = 2 * SLOT
_NAME_BYTES: Final = 56
# Parts of the kind of a lease: the count in bits 0 to 7, and the rest.
_DELTA: Final = 8
_RETURNED: Final = 1 << 15
_ATTEMPT: Final = 16
_MOST_ATTEMPTS: Final = 0xFFFF
_QUEUE: Final = 32
# The member of a lease in bits 0 to 31, and the place of the reserve.
_RESERVE: Final = 32
_NO_RESERVE: Final = (0, 0, 0)
_MEMBER_BITS: Final = (1 << _RESERVE) - 1
_log = logging.getLogger("lakelog")


class Claim(NamedTuple):
    """A message whose invisible time was over, and that is handed out again.

    :ivar lease: the place of its lease
    :ivar queue: the place of its queue
    :ivar attempt: number of hand-outs from this queue, this one included
    :ivar returned: whether a holder returned it
    """

    lease: int
    queue: int
    offset: int
    attempt: int
    returned: bool


class FreshMessages(NamedTuple):
    """Messages read from a queue, to be handed out.

    :ivar queue: the place of the queue
    :ivar start: the offset from which they were read
    :ivar next_offset: where reading continues
    :ivar offsets: the queue offset of each message
    """

    queue: int
    start: int
    next_offset: int
    offsets: Sequence[int]


Handle: TypeAlias = tuple[int, int, int]
"""Of a message that was handed out: the place of its lease, the number of that, and its offset."""


def _open_bits(words: memoryview, lease: int) -> int:
    """The bits that are not acknowledged."""
    bits = (1 << (words[lease + _KIND] & 0xFF)) - 1 & ~words[lease + _ACKED]
    reserve = words[lease + _MEMBER] >> _RESERVE
    return int(bits & ~words[reserve + _ACKS] if reserve else bits)


def _deadline(words: memoryview, lease: int) -> int:
    reserve = words[lease + _MEMBER] >> _RESERVE
    return int(words[reserve + _UNTIL] if reserve else words[lease + _DEADLINE])


def _offsets(words: memoryview, lease: int) -> list[int]:
    """The offsets that are not acknowledged."""
    return _offsets_of(words, lease, _open_bits(words, lease))


def _offsets_of(words: memoryview, lease: int, bits: int) -> list[int]:
    start = words[lease + _START]
    return [start + bit for bit in range(bits.bit_length()) if bits >> bit & 1]


def _run_start(words: memoryview, lease: int) -> int:
    return int(words[lease + _START] - (words[lease + _KIND] >> _DELTA & 0x3F))


def _mask(start: int, offsets: Iterable[int]) -> int:
    bits = 0
    for each in offsets:
        bits |= 1 << each - start
    return bits


def is_whole(words: memoryview) -> bool:
    """Whether queues, lists of leases and members fit together; raises ``IndexError`` if not."""
    seen = list(_chain(words, MEMBERS))
    for member in list(seen):
        reserves = list(_chain(words, member + _RESERVES))
        seen += reserves
        if any(words[each] for each in (member, *reserves)):
            return False
        for each in reserves:
            lease = words[each + _LEASE]
            if lease and words[lease + _MEMBER] >> _RESERVE != each:
                return False
    for queue in _chain(words, QUEUES, _CHAIN):
        leases = list(_chain(words, queue + HEAD))
        seen += [queue, *leases]
        keys = [_run_start(words, lease) for lease in leases]
        before = [0, *leases]
        if keys != sorted(keys) or words[queue + _TAIL] != before[-1]:
            return False
        for lease, former in zip(leases, before, strict=False):
            kind = words[lease + _KIND]
            fits = words[lease + _BEFORE] == former and kind >> _QUEUE == queue and words[lease]
            reserve = words[lease + _MEMBER] >> _RESERVE
            is_open = words[reserve + _LEASE] == lease if reserve else _open_bits(words, lease)
            if not (fits and kind & 0xFF <= RUN and is_open):
                return False
    return len(seen) == len(set(seen))


def _chain(words: memoryview, at: int, link: int = _AFTER) -> Iterator[int]:
    """Places of slots, of which the word ``at`` has the first, and each the next one."""
    most = len(words) // SLOT
    while slot := words[at]:
        most -= 1
        if most < 0 or slot % SLOT or not FIRST_SLOT <= slot < words[USED]:
            raise IndexError
        yield slot
        at = slot + link


class GroupState:
    """The state of one group, or of one broadcasting consumer; thread-safe.

    :ivar number: the number of the member that uses it; 0 is none
    """

    def __init__(self, file: StateFile) -> None:
        self.file = file
        self.number = 0
        self._place = 0
        self._reserved: dict[int, tuple[int, int, int]] = {}
        self._spare = list[int]()
        self._withdrawals = 0
        self._entries: dict[Queue, int] = {}
        self._names: dict[int, Queue] = {}

    @classmethod
    def opened(
        cls, files: FileSystem, path: Path, scope: str, now_ms: Callable[[], int]
    ) -> GroupState:
        """Open the state ``scope`` of the store directory ``path``; raises ``OSError``."""

        def warn(where: Path, fault: str) -> None:
            _log.warning("%s: %s; its group continues at the committed offsets", where, fault)

        return cls(StateOpening(files, now_ms, is_whole, warn).opened(path, scope))

    # --- members ---

    def join(self, scope: str, subscription: str, now_ms: int, *, is_alone: bool) -> int:
        """Add a member and lock its byte; return its number.

        :param is_alone: whether it tolerates no other living member

        Raises :class:`~lakelog.errors.SettingsError` if a living member has another subscription.
        """
        return self.file.run(self._join, scope, subscription, now_ms, is_alone=is_alone)

    def _join(self, scope: str, subscription: str, now_ms: int, *, is_alone: bool) -> int:
        words = self.file.words
        digest = int.from_bytes(sha256(subscription.encode()).digest()[:8])
        for member in _chain(words, MEMBERS):
            number = words[member + _NUMBER]
            if (is_alone or words[SUBSCRIPTION] != digest) and self.file.is_member(number):
                raise _refused(scope, number, self.file.text, subscription, is_alone=is_alone)
        words[CLEAN] = 0
        if words[SUBSCRIPTION] != digest:
            self.file.set_text(subscription)
            words[SUBSCRIPTION] = digest
        number = words[NEXT_MEMBER]
        while not self.file.take_member(number):  # before others see the entry
            number += 1
        slot, changes = self.file.unused()
        content = [number, os.getpid(), now_ms, 0, 0]
        words[slot + _NUMBER : slot + _NUMBER + 5] = array("Q", content)
        after = slot + _AFTER
        more = [slot, 0, after, words[MEMBERS], MEMBERS, slot, NEXT_MEMBER, number + 1]
        self.file.apply([*changes, *more, GENERATION, words[GENERATION] + 1])
        self.number, self._place = int(number), slot
        return self.number

    @property
    def generation(self) -> int:
        """A number that changes when a member joins, and when one is removed."""
        return int(self.file.words[GENERATION])

    def members(self, now_ms: int, idle_ms: int) -> list[int]:
        """Note that this member is active, remove dead members, and return the active ones."""
        self.file.check_length()
        return self.file.run(self._active, now_ms, idle_ms)

    def _active(self, now_ms: int, idle_ms: int) -> list[int]:
        words, found = self.file.words, list[int]()
        for member in list(_chain(words, MEMBERS)):
            number = words[member + _NUMBER]
            if number == self.number:
                words[member + _SEEN] = now_ms
            elif not self.file.is_member(number):
                self._remove_member(member)
                continue
            if words[member + _SEEN] + idle_ms >= now_ms:
                found.append(number)
        return found

    def _remove_member(self, member: int) -> None:
        for reserve in _chain(self.file.words, member + _RESERVES):
            if lease := self.file.words[reserve + _LEASE]:
                self._withdraw(lease, is_dead=True)
        words = self.file.words
        for queue in self._queues().values():
            words[queue + DUE] = 0
        before = MEMBERS
        while words[before] != member:
            before = words[before] + _AFTER
        link = [before, words[member + _AFTER]]
        more = [GENERATION, words[GENERATION] + 1, member + _AFTER, words[member + _RESERVES]]
        self.file.drop(member, [*link, *more])

    def leave(self, now_ms: int) -> None:
        """Remove this member; its messages are visible at once."""
        self.file.run(self._leave, now_ms)

    def _leave(self, now_ms: int) -> None:
        words, others = self.file.words, 0
        for member in list(_chain(words, MEMBERS)):
            number = words[member + _NUMBER]
            if number == self.number or not self.file.is_member(number):
                self._remove_member(member)
            else:
                others += 1
        if not others:
            self.file.mark_clean(now_ms)

    # --- queues ---

    def queues(self) -> dict[Queue, int]:
        """The place of each queue that the group knows."""
        known = self.file.run(self._queues)
        words = self.file.words
        return {queue: at for queue, at in known.items() if words[at + _COUNTS]}

    def _queues(self) -> dict[Queue, int]:
        words = self.file.words
        if words[QUEUE_COUNT] != len(self._entries):
            at = words[QUEUES]
            while at:
                if at not in self._names:
                    self._names[at] = _queue_at(words, at)
                    self._entries[self._names[at]] = at
                at = words[at + _CHAIN]
        return self._entries

    def name(self, at: int) -> Queue:
        """Topic and queue id of the queue at a place."""
        return self._names[at]

    def add_queues(self, queues: Iterable[tuple[Queue, int, int | None]]) -> None:
        """Add queues that are not known yet: the next offset, and the committed one of each."""
        for queue, at, stored in queues:
            self.file.run(self._add_queue, queue, at, stored)

    def _add_queue(self, queue: Queue, at: int, stored: int | None) -> None:
        words, note = self.file.words, NONE if stored is None else stored
        entry = self._queues().get(queue)
        if entry is not None:
            if not words[entry + _COUNTS]:
                self._restart(entry, at, note)
            return
        name = queue[0].encode()
        slot, changes = self.file.unused(2 + _slots_of(len(name)))
        words = self.file.words
        words[slot : slot + _NAME_AT] = array(
            "Q", [0, queue[1] | len(name) << 32, at, note, note, 0, 0, NONE, 0, 0, 1, *[0] * 5]
        )
        for number in range(_slots_of(len(name))):
            part = name[number * _NAME_BYTES :][:_NAME_BYTES].ljust(_NAME_BYTES, b"\0")
            place = slot + _NAME_AT + number * SLOT
            words[place : place + SLOT] = array("Q", bytes(8) + part)
        link = [slot + _CHAIN, words[QUEUES], QUEUES, slot, QUEUE_COUNT, words[QUEUE_COUNT] + 1]
        self.file.apply(changes + link)

    def restart(self, queues: Mapping[Queue, int | None]) -> None:
        """Continue ``queues`` at these offsets; forget a queue without one."""
        for queue, at in queues.items():
            self.file.run(self._restart_known, queue, at)

    def _restart_known(self, queue: Queue, at: int | None) -> None:
        entry = self._queues().get(queue)
        if entry is not None:
            self._restart(entry, at, NONE if at is None else at)

    def _restart(self, entry: int, at: int | None, stored: int) -> None:
        """Drop all leases of a queue; ``at`` is the next offset, ``stored`` the committed one."""
        self._withdraw_all(entry)
        words, counts = self.file.words, at is not None
        changes = [entry + NEXT, at or 0, entry + _STORED, stored, entry + _INTENDED, stored]
        changes += [entry + HEAD, 0, entry + _TAIL, 0, entry + _COUNTS, int(counts)]
        self.file.drop(words[entry + HEAD], changes)

    # --- handing out ---

    def take(
        self,
        fresh: Sequence[FreshMessages],
        number: int,
        deadline_ms: int,
        *,
        orderly: bool,
    ) -> list[list[int] | None]:
        """Hand out messages; returns for each of ``fresh`` the place of each message's lease.

        ``None`` if another member moved the offset meanwhile, and with ``orderly`` also if any
        message of the queue is handed out already.

        :param number: identifies this hand-out
        """
        return self.file.run(self._take, fresh, number, deadline_ms, orderly)

    def _take(
        self,
        fresh: Sequence[FreshMessages],
        number: int,
        deadline_ms: int,
        orderly: bool,
        is_reserve: bool = False,
    ) -> list[list[int] | None]:
        found: list[list[int] | None] = []
        for queue, start, next_offset, offsets in fresh:
            words = self.file.words
            if words[queue + NEXT] != start or (orderly and words[queue + HEAD]):
                found.append(None)
                continue
            if next_offset < start:  # the queue was cut: what is out does not exist any more
                self._restart(queue, next_offset, words[queue + _STORED])
            if not offsets:
                words[queue + NEXT] = next_offset
                found.append([])
                continue
            leases, begin = list[int](), 0
            while begin < len(offsets):
                first, end = offsets[begin], min(begin + RUN, len(offsets))
                while offsets[end - 1] - first >= RUN:
                    end -= 1
                count = offsets[end - 1] - first + 1
                acked = 0 if count == end - begin else (1 << count) - 1
                if acked:
                    acked &= ~_mask(first, offsets[begin:end])
                after = offsets[end] if end < len(offsets) else next_offset
                kind = queue << _QUEUE | 1 << _ATTEMPT | count
                content = [first, acked, deadline_ms, self.number, kind]
                reserve = self._unused_reserve() if is_reserve else 0
                lease = self._append(queue, content, [queue + NEXT, after], number, reserve)
                if reserve:
                    self._reserved[lease] = reserve, first, number
                leases += [lease] * (end - begin)
                begin = end
            found.append(leases)
        return found

    def _append(
        self, queue: int, content: list[int], more: list[int], number: int, reserve: int
    ) -> int:
        """Add a lease at the end of a queue's list; the words from :data:`_START` on."""
        lease, changes = self.file.unused()
        words = self.file.words
        if reserve:
            content[3] |= reserve << _RESERVE
            words[reserve + _UNTIL : reserve + _BEGUN + 1] = array("Q", [content[2], 0, 0, 0])
            changes += (reserve + _LEASE, lease)
        words[lease + 1 : lease + 6] = array("Q", content)  # the slot is free: no change yet
        words[queue + DUE] = min(words[queue + DUE], content[2])
        tail = words[queue + _TAIL]
        link = tail + _AFTER if tail else queue + HEAD
        changes += (lease, number, lease + _BEFORE, tail, lease + _AFTER, 0)
        changes += (link, lease, queue + _TAIL, lease)
        self.file.apply(changes + more)
        return lease

    def _split(self, lease: int, bits: int, number: int, more: Sequence[int]) -> int:
        """Move some messages of a lease to a new one before it; returns its place.

        :param more: deadline, member, and the part of the kind above the count
        """
        slot, changes = self.file.unused()
        words = self.file.words
        first = (bits & -bits).bit_length() - 1
        bits >>= first
        count = bits.bit_length()
        deadline_ms, member, kind = more
        kind += count | (words[lease + _KIND] >> _DELTA & 0x3F) + first << _DELTA
        acked = (1 << count) - 1 & ~bits
        content = [words[lease + _START] + first, acked, deadline_ms, member, kind]
        words[slot + 1 : slot + 6] = array("Q", content)
        queue, before = kind >> _QUEUE, words[lease + _BEFORE]
        words[queue + DUE] = min(words[queue + DUE], deadline_ms)
        link = before + _AFTER if before else queue + HEAD
        changes += (slot, number, slot + _BEFORE, before, slot + _AFTER, lease)
        changes += (link, slot, lease + _BEFORE, slot)
        self.file.apply([*changes, lease + _ACKED, words[lease + _ACKED] | bits << first])
        return slot

    def _give(self, lease: int, bits: int, number: int, more: Sequence[int]) -> int:
        """Give some messages of a lease to another holder; returns the place of their lease."""
        if bits != _open_bits(self.file.words, lease):
            return self._split(lease, bits, number, more)
        deadline_ms, member, kind = more
        queue = kind >> _QUEUE
        self.file.words[queue + DUE] = min(self.file.words[queue + DUE], deadline_ms)
        kind |= self.file.words[lease + _KIND] & _RETURNED - 1
        holder = [lease, number, lease + _DEADLINE, deadline_ms, lease + _MEMBER, member]
        self.file.apply([*holder, lease + _KIND, kind])
        return lease

    def _set(self, lease: int, bits: int) -> None:
        """Acknowledge messages of a lease."""
        words = self.file.words
        if reserve := words[lease + _MEMBER] >> _RESERVE:
            words[reserve + _ACKS] |= bits
        elif bits != _open_bits(words, lease):
            words[lease + _ACKED] |= bits
        else:
            self._free(lease, [])

    def _free(self, lease: int, changes: list[int]) -> None:
        """Free a lease together with the changes that release its reserve."""
        words = self.file.words
        queue, before, after = words[lease + _KIND] >> _QUEUE, *words[lease + _BEFORE : lease + 8]
        self.file.free(
            lease,
            [
                *(before + _AFTER if before else queue + HEAD, after),
                *(after + _BEFORE if after else queue + _TAIL, before),
                *changes,
            ],
        )

    # --- leases with a reserve ---

    def reserve(
        self, fresh: Sequence[FreshMessages], number: int, deadline_ms: int
    ) -> list[list[int] | None]:
        """As :meth:`take`, of messages that :meth:`begin` hands out; :data:`RESERVED` leases."""
        return self.file.run(self._reserve, fresh, number, deadline_ms)

    def _reserve(
        self, fresh: Sequence[FreshMessages], number: int, deadline_ms: int
    ) -> list[list[int] | None]:
        self._look_at_reserves()
        return self._take(fresh, number, deadline_ms, orderly=False, is_reserve=True)

    def _look_at_reserves(self) -> None:
        """Free leases of which all is acknowledged, and find out which reserves are in use."""
        words = self.file.words
        self._withdrawals, spare, used = words[self._place + _WITHDRAWALS], list[int](), {}
        for reserve in _chain(words, self._place + _RESERVES):
            lease = words[reserve + _LEASE]
            if lease and not _open_bits(words, lease):
                self._withdraw(lease)
                lease = 0
            if lease:
                used[lease] = reserve, words[lease + _START], words[lease]
            else:
                spare.append(reserve)
        self._reserved, self._spare = used, spare

    def _unused_reserve(self) -> int:
        if self._spare:
            return self._spare.pop()
        words, reserves = self.file.words, self._place + _RESERVES
        if len(self._reserved) < _MOST_RESERVES:
            slot, changes = self.file.unused()
            more = [slot, 0, slot + _LEASE, 0, slot + _AFTER, self.file.words[reserves]]
            self.file.apply([*changes, *more, reserves, slot])
            return slot
        oldest = min(self._reserved, key=lambda lease: (words[lease], lease))
        slot = self._reserved[oldest][0]
        self._withdraw(oldest)
        return slot

    def _withdraw_all(self, queue: int) -> None:
        for lease in list(_chain(self.file.words, queue + HEAD)):
            self._withdraw(lease)

    def _withdraw(self, lease: int, *, is_dead: bool = False) -> None:
        """Make a lease with a reserve an ordinary one, and return what was not handed out.

        :param is_dead: whether its member is dead
        """
        words = self.file.words
        reserve, number = divmod(words[lease + _MEMBER], 1 << _RESERVE)
        if not reserve:
            return
        self._reserved.pop(lease, None)  # before: the reserve may be used again after it
        if number != self.number and not is_dead:
            for member in _chain(words, MEMBERS):
                if words[member + _NUMBER] == number:
                    words[member + _WITHDRAWALS] += 1
            fence_all()  # if refused, a message may come twice at the very end of its time
        bits, kind = _open_bits(words, lease), words[lease + _KIND]
        rest, queue = bits & ~words[reserve + _HANDED], kind >> _QUEUE
        if rest and rest != bits:
            self._split(lease, rest, _NOBODY, (0, 0, _unhanded(kind)))
            words = self.file.words
        end = [reserve + _LEASE, 0]
        acked = words[lease + _ACKED] | words[reserve + _ACKS]
        if not bits:
            self._free(lease, end)
            return
        changes = [lease + _ACKED, acked]
        if rest == bits:
            until, kind = 0, _unhanded(kind) | kind & _RETURNED - 1
            changes += [lease, _NOBODY, lease + _MEMBER, 0, lease + _KIND, kind]
        else:
            until = words[reserve + _UNTIL]
            changes += [lease + _MEMBER, number]
        words[queue + DUE] = min(words[queue + DUE], until)
        self.file.apply([*changes, lease + _DEADLINE, until, *end])

    def withdraw(self) -> None:
        """Make all leases of this member ordinary ones."""
        self.file.run(self._withdraw_own)

    def _withdraw_own(self) -> None:
        for reserve in _chain(self.file.words, self._place + _RESERVES):
            if lease := self.file.words[reserve + _LEASE]:
                self._withdraw(lease)

    def begin(self, handles: Sequence[Handle], now_ms: int, deadline_ms: int) -> bool:
        """Hand out messages that were reserved, with all before them in their leases.

        ``False`` if that needs the turn.
        """
        return self.file.run_here(self._begin, handles, now_ms, deadline_ms)

    def _begin(self, handles: Sequence[Handle], now_ms: int, deadline_ms: int) -> bool:
        words, last = self.file.words, {each[0]: each for each in handles}
        if words[self._place + _WITHDRAWALS] != self._withdrawals:
            return False
        for lease, number, offset in last.values():
            reserve, start, own = self._reserved.get(lease, _NO_RESERVE)
            if own != number:
                return False
            handed = words[reserve + _HANDED]
            if now_ms != words[reserve + _BEGUN]:
                if not handed & ~words[reserve + _ACKS]:
                    words[reserve + _BEGUN] = now_ms
                elif now_ms > words[reserve + _BEGUN] + _TOGETHER_MS:
                    return False
                words[reserve + _UNTIL] = max(words[reserve + _UNTIL], deadline_ms)
            words[reserve + _HANDED] = (2 << offset - start) - 1
        return bool(words[self._place + _WITHDRAWALS] == self._withdrawals)

    # --- handing out again ---

    def due(self, queues: Collection[int], now_ms: int) -> list[int]:
        """The leases of ``queues`` with messages whose invisible time is over, in their order."""
        words = self.file.words
        for queue in queues:
            if words[queue + DUE] <= now_ms:
                return self.file.run(self._due, set(queues), now_ms)
        return []

    def _due(self, queues: set[int], now_ms: int) -> list[int]:
        words = self.file.words
        living = {words[member + _NUMBER] for member in _chain(words, MEMBERS)}
        end, found = words[USED], list[tuple[int, int, int]]()
        earliest = dict.fromkeys(queues, NONE)
        columns = (
            words[FIRST_SLOT + word : end : SLOT].tolist() for word in (0, _DEADLINE, _MEMBER)
        )
        for row, (number, deadline_ms, holder) in enumerate(zip(*columns, strict=False)):
            if number:
                lease = FIRST_SLOT + row * SLOT
                queue = words[lease + _KIND] >> _QUEUE
                if queue not in earliest:
                    continue
                until_ms = _deadline(words, lease) if holder > _MEMBER_BITS else deadline_ms
                member = holder & _MEMBER_BITS
                if until_ms <= now_ms or (member and member not in living):
                    found.append((queue, words[lease + _START], lease))
                elif until_ms < earliest[queue]:
                    earliest[queue] = until_ms
        for queue in queues - {each for each, _, _ in found}:
            words[queue + DUE] = earliest[queue]
        return [lease for _, _, lease in sorted(found)]

    def claim(
        self, leases: list[int], most: int, number: int, now_ms: int, deadline_ms: int
    ) -> list[Claim]:
        """Hand out due messages again; removes from ``leases`` those that are done.

        :param leases: as :meth:`due` found them; those that are not due any more are left out
        """
        return self.file.run(self._claim, leases, most, number, now_ms, deadline_ms)

    def _claim(
        self, leases: list[int], most: int, number: int, now_ms: int, deadline_ms: int
    ) -> list[Claim]:
        words, found = self.file.words, list[Claim]()
        living = {words[member + _NUMBER] for member in _chain(words, MEMBERS)}
        done = 0
        for lease in leases:
            if len(found) >= most:
                break
            done += 1
            if self._is_due(lease, living, now_ms):
                self._withdraw(lease)
                words = self.file.words
            if self._is_due(lease, living, now_ms):
                offsets = _offsets(words, lease)
                if len(offsets) > most - len(found):
                    done -= 1
                    offsets = offsets[: most - len(found)]
                found += self._again(lease, offsets, number, deadline_ms)
                words = self.file.words
        del leases[:done]
        return found

    def _is_due(self, lease: int, living: Collection[int], now_ms: int) -> bool:
        words = self.file.words
        if not words[lease]:  # it is freed, and may be used as something else
            return False
        if _deadline(words, lease) <= now_ms:
            return True
        member = words[lease + _MEMBER] & _MEMBER_BITS
        return bool(member and member not in living)

    def _again(
        self, lease: int, offsets: Sequence[int], number: int, deadline_ms: int
    ) -> list[Claim]:
        words = self.file.words
        kind, start = words[lease + _KIND], words[lease + _START]
        attempt = min((kind >> _ATTEMPT & _MOST_ATTEMPTS) + 1, _MOST_ATTEMPTS)
        queue, returned = kind >> _QUEUE, kind & _RETURNED
        more = deadline_ms, self.number, queue << _QUEUE | attempt << _ATTEMPT | returned
        place = self._give(lease, _mask(start, offsets), number, more)
        return [Claim(place, queue, each, attempt, bool(returned)) for each in offsets]

    def claim_in_order(
        self, queues: Collection[int], most: int, number: int, now_ms: int, deadline_ms: int
    ) -> list[Claim]:
        """As :meth:`claim`, from those of ``queues`` of which all messages that are out are due."""
        words = self.file.words
        due = [each for each in queues if words[each + HEAD] and words[each + DUE] <= now_ms]
        return self.file.run(self._in_order, due, most, number, now_ms, deadline_ms) if due else []

    def _in_order(
        self, queues: Sequence[int], most: int, number: int, now_ms: int, deadline_ms: int
    ) -> list[Claim]:
        found = list[Claim]()
        for queue in queues:
            if len(found) < most:
                found += self._ordered(queue, most - len(found), number, now_ms, deadline_ms)
        return found

    def _ordered(
        self, queue: int, most: int, number: int, now_ms: int, deadline_ms: int
    ) -> list[Claim]:
        self._withdraw_all(queue)
        words = self.file.words
        living = {words[member + _NUMBER] for member in _chain(words, MEMBERS)}
        leases = list(_chain(words, queue + HEAD))
        if not all(self._is_due(each, living, now_ms) for each in leases):
            mine = (words[each + _DEADLINE] for each in leases)
            later = [each for each in mine if each > now_ms]
            if all(words[each + _MEMBER] in (0, *living) for each in leases):
                words[queue + DUE] = min(later, default=now_ms)
            return []
        places = sorted((at, each) for each in leases for at in _offsets(words, each))[:most]
        found = list[Claim]()
        for lease in dict.fromkeys(lease for _, lease in places):
            chosen = [at for at, each in places if each == lease]
            found += self._again(lease, chosen, number, deadline_ms)
        return sorted(found, key=lambda claim: claim.offset)

    # --- outcomes ---

    def remove(self, handles: Sequence[Handle]) -> bool:
        """Acknowledge; returns whether all were still handed out by that hand-out."""
        done = self.file.run_here(self._remove_reserved, handles)
        return self.file.run(self._remove, handles) if done is None else done

    def _remove_reserved(self, handles: Sequence[Handle]) -> bool | None:
        """``None`` if that needs the turn."""
        words, reserved, found, done = self.file.words, self._reserved, dict[int, int](), True
        if words[self._place + _WITHDRAWALS] != self._withdrawals:
            return None
        for lease, number, offset in handles:
            _, start, own = reserved.get(lease, _NO_RESERVE)
            if own != number:
                return None
            bit = 1 << offset - start
            found[lease] = found[lease] | bit if lease in found else bit
        for lease, bits in found.items():
            reserve = reserved[lease][0]
            acks = words[reserve + _ACKS]
            mine = bits & words[reserve + _HANDED] & ~acks
            words[reserve + _ACKS] = acks | mine
            done &= mine == bits
        return done if words[self._place + _WITHDRAWALS] == self._withdrawals else None

    def _remove(self, handles: Sequence[Handle]) -> bool:
        words, done = self.file.words, True
        bits = dict[int, int]()
        for lease, number, offset in handles:
            if not (lease < len(words) and words[lease] == number):
                done = False
                continue
            bit = 1 << offset - words[lease + _START]
            if not _open_bits(words, lease) & bit:
                done = False
            else:
                bits[lease] = bits.get(lease, 0) | bit
        for lease, mask in bits.items():
            self._set(lease, mask)
        return done

    def _has(self, handle: Handle) -> bool:
        words = self.file.words
        lease, number, offset = handle
        if not (lease < len(words) and words[lease] == number):
            return False
        return bool(_open_bits(words, lease) >> offset - words[lease + _START] & 1)

    def renew(self, handle: Handle, deadline_ms: int) -> bool:
        """Move the end of the invisible time; returns as :meth:`remove`.

        That of other messages of the same lease does not become shorter.
        """
        return self.file.run(self._renew, handle, deadline_ms)

    def _renew(self, handle: Handle, deadline_ms: int) -> bool:
        if not self._has(handle):
            return False
        self._withdraw(handle[0])
        words, (lease, _, offset) = self.file.words, handle
        if 1 << offset - words[lease + _START] != _open_bits(words, lease):
            deadline_ms = max(deadline_ms, words[lease + _DEADLINE])
        queue = words[lease + _KIND] >> _QUEUE
        words[queue + DUE] = min(words[queue + DUE], deadline_ms)
        words[lease + _DEADLINE] = deadline_ms
        return True

    def give_back(self, handle: Handle, deadline_ms: int, *, orderly: bool) -> bool:
        """Return a message that failed; it is visible at ``deadline_ms``.

        With ``orderly`` the later messages of its queue are returned too, as if never handed out.
        """
        return self.file.run(self._give_back, handle, deadline_ms, orderly)

    def _give_back(self, handle: Handle, deadline_ms: int, orderly: bool) -> bool:
        if not self._has(handle):
            return False
        self._withdraw(handle[0])
        words, (lease, _, offset) = self.file.words, handle
        kind = words[lease + _KIND] >> _ATTEMPT << _ATTEMPT | _RETURNED
        if orderly:
            for each in list(_chain(words, (kind >> _QUEUE) + HEAD)):
                later = [at for at in _offsets(words, each) if at > offset]
                if later:
                    self._unhand(each, _mask(words[each + _START], later), deadline_ms)
                    words = self.file.words
        bit = 1 << offset - words[lease + _START]
        self._give(lease, bit, _NOBODY, (deadline_ms, 0, kind))
        return True

    def _unhand(self, lease: int, bits: int, deadline_ms: int) -> None:
        """Return messages as if never handed out."""
        kind = _unhanded(self.file.words[lease + _KIND])
        self._give(lease, bits, _NOBODY, (deadline_ms, 0, kind))

    def undo(self, number: int, handles: Iterable[Handle] = (), deadline_ms: int = 0) -> None:
        """Return the messages of a hand-out that did not reach the caller of ``poll``.

        :param number: of the hand-out; 0 for none
        :param handles: of messages that were reserved
        """
        self.file.run(self._undo, number, handles, deadline_ms)

    def _undo(self, number: int, handles: Iterable[Handle], deadline_ms: int) -> None:
        for handle in handles:
            if self._has(handle):
                self._withdraw(handle[0])
                self._postpone(handle, deadline_ms)
        words = self.file.words
        numbers = words[FIRST_SLOT : words[USED] : SLOT].tolist() if number else []
        for row in (row for row, each in enumerate(numbers) if each == number):
            lease = FIRST_SLOT + row * SLOT
            self._unhand(lease, _open_bits(words, lease), deadline_ms)

    def postpone(self, handle: Handle, deadline_ms: int) -> None:
        """Undo a claim; the message is visible again at ``deadline_ms``."""
        self.file.run(self._postpone, handle, deadline_ms)

    def _postpone(self, handle: Handle, deadline_ms: int) -> None:
        if self._has(handle):
            lease, _, offset = handle
            self._unhand(lease, 1 << offset - self.file.words[lease + _START], deadline_ms)

    def next_due_ms(self, queues: Iterable[int]) -> int:
        """A time before which no message of ``queues`` is visible again."""
        words = self.file.words
        return min((words[queue + DUE] for queue in queues), default=NONE)

    # --- committed offsets; the caller is in the turn of commits ---

    def intend(self) -> dict[Queue, int]:
        """The offsets to commit that are not committed yet, noted as intended."""
        return self.file.run(self._intend)

    def _intend(self) -> dict[Queue, int]:
        words, found = self.file.words, dict[Queue, int]()
        for queue, entry in self._queues().items():
            if words[entry + _COUNTS]:
                at = self._committed(entry)
                if at != words[entry + _STORED]:
                    words[entry + _INTENDED] = at
                    found[queue] = at
        return found

    def _committed(self, queue: int) -> int:
        """The first offset that is not acknowledged."""
        words = self.file.words
        lease = words[queue + HEAD]
        if not lease:
            return int(words[queue + NEXT])
        key, found = _run_start(words, lease), NONE
        while lease and (found == NONE or _run_start(words, lease) == key):
            if bits := _open_bits(words, lease):
                key = _run_start(words, lease)
                found = min(found, words[lease + _START] + (bits & -bits).bit_length() - 1)
            lease = words[lease + _AFTER]
        return int(words[queue + NEXT] if found == NONE else found)

    def stored(self, offsets: Mapping[Queue, int]) -> None:
        """Note that ``offsets`` are in the file."""
        self.file.run(self._stored, offsets)

    def _stored(self, offsets: Mapping[Queue, int]) -> None:
        words, known = self.file.words, self._queues()
        for queue, at in offsets.items():
            words[known[queue] + _STORED] = at

    def foreign(self, file: Mapping[Queue, int]) -> dict[Queue, int | None]:
        """Queues whose offset in the file no member of this group wrote, and that offset.

        ``None``: an offset that a member wrote was removed. An offset that was intended, and is in
        the file, is noted as committed.
        """
        return self.file.run(self._foreign, file)

    def _foreign(self, file: Mapping[Queue, int]) -> dict[Queue, int | None]:
        words, found = self.file.words, dict[Queue, int | None]()
        for queue, entry in self._queues().items():
            at = file.get(queue)
            value = NONE if at is None else at
            if not words[entry + _COUNTS] or value == words[entry + _STORED]:
                continue
            if value == words[entry + _INTENDED]:
                words[entry + _STORED] = value
            else:
                found[queue] = at
        return found


def _unhanded(kind: int) -> int:
    """The kind of a lease of messages as if never handed out, without the count."""
    attempt = max((kind >> _ATTEMPT & _MOST_ATTEMPTS) - 1, 0)
    return kind >> _QUEUE << _QUEUE | attempt << _ATTEMPT | kind & _RETURNED


def _queue_at(words: memoryview, at: int) -> Queue:
    length = words[at + _ID] >> 32
    parts = range(at + _NAME_AT, at + _NAME_AT + _slots_of(length) * SLOT, SLOT)
    name = b"".join(words[part + 1 : part + SLOT].tobytes() for part in parts)
    return name[:length].decode(), int(words[at + _ID] & 0xFFFF_FFFF)


class LeaseStatus(NamedTuple):
    """A lease, as :func:`queues_in` finds it.

    :ivar member: 0 if nobody has it
    :ivar taken_ms: when it was handed out; ``None`` without a member
    """

    member: int
    attempt: int
    deadline_ms: int
    taken_ms: int | None
    returned: bool
    offsets: list[int]


def members_in(words: memoryview) -> list[list[int]]:
    """Number, process id and last activity of each member; raises ``IndexError`` if damaged."""
    return [list(words[at + _NUMBER : at + _SEEN + 1]) for at in _chain(words, MEMBERS)]


def queues_in(words: memoryview) -> Iterator[tuple[Queue, int, list[LeaseStatus]]]:
    """Each queue, its next offset, and its leases; raises ``IndexError`` if damaged."""
    for queue in _chain(words, QUEUES, _CHAIN):
        if words[queue + _COUNTS]:
            leases, next_offset = list[LeaseStatus](), words[queue + NEXT]
            for lease in _chain(words, queue + HEAD):
                reserve, bits = words[lease + _MEMBER] >> _RESERVE, _open_bits(words, lease)
                handed = bits & words[reserve + _HANDED] if reserve else bits
                leases.append(_lease_at(words, lease, handed))
                next_offset = min([next_offset, *_offsets_of(words, lease, bits & ~handed)])
            yield _queue_at(words, queue), next_offset, leases


def _lease_at(words: memoryview, at: int, bits: int) -> LeaseStatus:
    kind, number = words[at + _KIND], words[at]
    member, attempt = words[at + _MEMBER] & _MEMBER_BITS, kind >> _ATTEMPT & _MOST_ATTEMPTS
    return LeaseStatus(
        *(member, attempt, _deadline(words, at)),
        *(taken_ms(number) if number > _NOBODY else None, bool(kind & _RETURNED)),
        _offsets_of(words, at, bits),
    )


_NUMBER_BITS: Final = 22


def hand_out(now_ms: int, count: int) -> int:
    """The number of a hand-out at a time; ``count`` differs among those of the same time."""
    return now_ms + 1 << _NUMBER_BITS | count & (1 << _NUMBER_BITS) - 1


def taken_ms(number: int) -> int:
    """The time of a hand-out."""
    return (number >> _NUMBER_BITS) - 1


def settle_states(files: FileSystem, path: Path, ends: Mapping[Queue, int]) -> None:
    """Remove the states that have handed out messages beyond the end of their queue.

    The messages were lost, and new ones will have these offsets. The groups continue at their
    committed offsets. Must be called before the first append, without members; raises ``OSError``.

    :param ends: by queue, the offset of its next message
    """
    for file, offsets in _next_offsets(files, path):
        beyond = [each for each, offset in offsets.items() if offset > ends.get(each, 0)]
        if beyond:
            files.unlink(file)
            files.sync_dir(file.parent)
            _log.warning(
                "%s: it has handed out messages up to offset %d of queue %s/%d, which ends at %d; "
                "its group continues at the committed offsets",
                *(file, offsets[beyond[0]], *beyond[0], ends.get(beyond[0], 0)),
            )


def queues_of_states(files: FileSystem, path: Path) -> set[Queue]:
    """The queues that any group knows, broadcasting consumers included; raises ``OSError``."""
    return {queue for _, offsets in _next_offsets(files, path) for queue in offsets}


def _next_offsets(files: FileSystem, path: Path) -> Iterator[tuple[Path, dict[Queue, int]]]:
    """The file of each state, and the next offset in each queue."""
    folder = path / OWN_DIR / GROUPS_DIR
    for name, _ in files.list(folder):
        data = read_file(files, folder / name) or b""
        words = memoryview(bytearray(data[: len(data) - len(data) % 8])).cast("Q")
        try:
            redo(words)
            places = list(_chain(words, QUEUES, _CHAIN))
            offsets = {_queue_at(words, at): words[at + NEXT] for at in places}
        except (IndexError, UnicodeDecodeError):
            continue  # it is damaged, and the first member will replace it
        yield folder / name, offsets


def _slots_of(length: int) -> int:
    return -(-length // _NAME_BYTES)


def _refused(
    scope: str, number: int, other: str, subscription: str, *, is_alone: bool
) -> SettingsError:
    if is_alone:
        text = f"the broadcasting consumer {scope!r} is member {number} already; give another name"
        return SettingsError(text, key="broadcast")
    return SettingsError(
        f"member {number} of {scope!r} subscribes {other}, and this one {subscription}; all "
        "members of a group need the same",
        key="topics",
    )


@attrs.frozen
class GroupCommits:
    """The committed offsets of one group."""

    group: str
    state: GroupState
    offsets: CurrentOffsets

    def read(self) -> dict[Queue, int]:
        """The offsets in the file, of topics that are not subscribed any more as well."""
        tables = self.offsets.stored(self.group)
        return {(topic, queue): at for topic in tables for queue, at in tables[topic].items()}

    def adopt(self) -> dict[Queue, int | None]:
        """Continue at offsets that another program committed; returns them."""
        if not self.state.foreign(self.read()):
            return {}
        return self.state.file.commits.run(self._adopt)  # a commit of another member is whole now

    def _adopt(self) -> dict[Queue, int | None]:
        found = self.state.foreign(self.read())
        if found:
            self.state.restart(found)
        return found

    def commit(self) -> None:
        """Commit the first offset of each queue that is not acknowledged."""
        self.state.file.commits.run(self._commit)

    def _commit(self) -> None:
        self._adopt()
        changed = self.state.intend()
        if not changed:
            return
        tables: dict[str, dict[int, int]] = {}
        for (topic, queue), at in changed.items():
            tables.setdefault(topic, {})[queue] = at
        self.offsets.commit_or_drop((self.group, each, table) for each, table in tables.items())
        self.state.stored(changed)


def change_offsets(
    log: DispatchedLog,
    groups: Collection[str],
    write: Callable[[], None],
    offsets: Callable[[str, Collection[Queue]], Mapping[Queue, int | None]],
) -> None:
    """Write offsets of groups, and let their members continue there.

    :param offsets: returns the new offsets of a group, given its queues; ``None`` forgets a queue
    """
    with ExitStack() as opened:
        states = {}
        for group in (
            () if log.read_only else sorted(groups)
        ):  # in one order, so that two calls do not wait for each other
            file = existing(log.files, log.path, group)
            if file is not None:
                opened.callback(file.close)
                file.commits.hold()
                states[group] = GroupState(file)
        write()
        for group, state in states.items():
            state.restart(offsets(group, state.queues()))
