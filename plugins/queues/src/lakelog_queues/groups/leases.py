"""Leases of messages: handing out, for the first time and again, and what becomes of it.

How they are kept: :mod:`lakelog_queues.groups.state_words`.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from lakelog.accelerate import current
from lakelog.message import StoredMessage
from lakelog.processes.locks import fence_all
from lakelog_queues.groups.set_aside import RETRY_TOPIC
from lakelog_queues.groups.state_file import (
    FIRST_SLOT,
    MEMBERS,
    NONE,
    SLOT,
    USED,
    StateFile,
)
from lakelog_queues.groups.state_words import (
    ACKED,
    ACKS,
    AFTER,
    ATTEMPT,
    BEFORE,
    BEGUN,
    COUNTS,
    DEADLINE,
    DELTA,
    DUE,
    HANDED,
    HEAD,
    INTENDED,
    KIND,
    LEASE,
    MEMBER,
    MEMBER_BITS,
    MOST_ATTEMPTS,
    NEXT,
    NO_RESERVE,
    NOBODY,
    NUMBER,
    QUEUE,
    RESERVE,
    RESERVES,
    RETURNED,
    RUN,
    START,
    STORED,
    TAIL,
    UNTIL,
    WITHDRAWALS,
    Claim,
    FreshMessages,
    Handle,
    chain,
    deadline_of,
    mask_of,
    open_bits,
    open_offsets,
    unhanded,
)

_MOST_RESERVES: Final = 64
RESERVED: Final = 32
"""Most leases that :meth:`GroupState.reserve` takes."""
_TOGETHER_MS: Final = 100
"""Hand-outs from one lease, of messages that are not acknowledged, lie within this time."""
_SHORT_SEARCH_S: Final = 0.001


class Delivery(NamedTuple):
    """A message that was handed out; give it to ``ack``, ``nack`` or ``renew``.

    :ivar topic: the topic of the queue, also for a light queue or the retry topic
    :ivar queue_offset: the offset in that queue
    :ivar attempt: number of hand-outs of the message to this group, from 1
    :ivar taken_ms: time of the hand-out, in ms since 1970
    :ivar visible_ms: time in ms since 1970 at which it is handed out again, unless acknowledged or
        renewed, and unless the clock is set
    :ivar handle: identifies the message and this hand-out
    """

    message: StoredMessage
    topic: str
    queue_id: int
    queue_offset: int
    attempt: int
    taken_ms: int
    visible_ms: int
    handle: Handle

    @property
    def origin_topic(self) -> str:
        """The topic to which the message was put, also if it comes from the retry topic."""
        return self.message.properties.get(RETRY_TOPIC) or self.topic


def bits_of(
    handles: list[Handle], reserved: dict[int, tuple[int, int, int]]
) -> list[tuple[int, int]] | None:
    """The bits of ``handles`` in each reserve; ``None`` if the lease of any has none.

    :param reserved: reserve, first offset and number of each lease with a reserve
    """
    found = dict[int, int]()
    for lease, number, offset in handles:
        reserve, start, own = reserved.get(lease, NO_RESERVE)
        if own != number:
            return None
        found[reserve] = found.get(reserve, 0) | 1 << offset - start
    return list(found.items())


def _bits_of(
    handles: list[Handle], reserved: dict[int, tuple[int, int, int]]
) -> list[tuple[int, int]] | None:
    accelerator = current()
    found = None if accelerator is None else accelerator.bits_of(handles, reserved)
    return bits_of(handles, reserved) if found is None else found


class Leases:
    """The leases of one group: handing out, and what becomes of it; thread-safe.

    :ivar number: the number of the member that uses it; 0 is none
    """

    def __init__(self, file: StateFile) -> None:
        self.file = file
        self.number = 0
        self._place = 0
        self._reserved: dict[int, tuple[int, int, int]] = {}
        self._spare = list[int]()
        self._withdrawals = 0
        self._search_s = 0.0

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
                self._restart(queue, next_offset, words[queue + STORED])
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
                    acked &= ~mask_of(first, offsets[begin:end])
                after = offsets[end] if end < len(offsets) else next_offset
                kind = queue << QUEUE | 1 << ATTEMPT | count
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
        """Add a lease at the end of a queue's list; the words from :data:`START` on."""
        lease, changes = self.file.unused()
        words = self.file.words
        if reserve:
            content[3] |= reserve << RESERVE
            words[reserve + UNTIL : reserve + BEGUN + 1] = array("Q", [content[2], 0, 0, 0])
            changes += (reserve + LEASE, lease)
        words[lease + 1 : lease + 6] = array("Q", content)  # the slot is free: no change yet
        words[queue + DUE] = min(words[queue + DUE], content[2])
        tail = words[queue + TAIL]
        link = tail + AFTER if tail else queue + HEAD
        changes += (lease, number, lease + BEFORE, tail, lease + AFTER, 0)
        changes += (link, lease, queue + TAIL, lease)
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
        kind += count | (words[lease + KIND] >> DELTA & 0x3F) + first << DELTA
        acked = (1 << count) - 1 & ~bits
        content = [words[lease + START] + first, acked, deadline_ms, member, kind]
        words[slot + 1 : slot + 6] = array("Q", content)
        queue, before = kind >> QUEUE, words[lease + BEFORE]
        words[queue + DUE] = min(words[queue + DUE], deadline_ms)
        link = before + AFTER if before else queue + HEAD
        changes += (slot, number, slot + BEFORE, before, slot + AFTER, lease)
        changes += (link, slot, lease + BEFORE, slot)
        self.file.apply([*changes, lease + ACKED, words[lease + ACKED] | bits << first])
        return slot

    def _give(self, lease: int, bits: int, number: int, more: Sequence[int]) -> int:
        """Give some messages of a lease to another holder; returns the place of their lease."""
        if bits != open_bits(self.file.words, lease):
            return self._split(lease, bits, number, more)
        deadline_ms, member, kind = more
        queue = kind >> QUEUE
        self.file.words[queue + DUE] = min(self.file.words[queue + DUE], deadline_ms)
        kind |= self.file.words[lease + KIND] & RETURNED - 1
        holder = [lease, number, lease + DEADLINE, deadline_ms, lease + MEMBER, member]
        self.file.apply([*holder, lease + KIND, kind])
        return lease

    def _set(self, lease: int, bits: int) -> None:
        """Acknowledge messages of a lease."""
        words = self.file.words
        if reserve := words[lease + MEMBER] >> RESERVE:
            words[reserve + ACKS] |= bits
        elif bits != open_bits(words, lease):
            words[lease + ACKED] |= bits
        else:
            self._free(lease, [])

    def _free(self, lease: int, changes: list[int]) -> None:
        """Free a lease together with the changes that release its reserve."""
        words = self.file.words
        queue, before, after = words[lease + KIND] >> QUEUE, *words[lease + BEFORE : lease + 8]
        self.file.free(
            lease,
            [
                *(before + AFTER if before else queue + HEAD, after),
                *(after + BEFORE if after else queue + TAIL, before),
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
        self._withdrawals, spare, used = words[self._place + WITHDRAWALS], list[int](), {}
        for reserve in chain(words, self._place + RESERVES):
            lease = words[reserve + LEASE]
            if lease and not open_bits(words, lease):
                self._withdraw(lease)
                lease = 0
            if lease:
                used[lease] = reserve, words[lease + START], words[lease]
            else:
                spare.append(reserve)
        self._reserved, self._spare = used, spare

    def _unused_reserve(self) -> int:
        if self._spare:
            return self._spare.pop()
        words, reserves = self.file.words, self._place + RESERVES
        if len(self._reserved) < _MOST_RESERVES:
            slot, changes = self.file.unused()
            more = [slot, 0, slot + LEASE, 0, slot + AFTER, self.file.words[reserves]]
            self.file.apply([*changes, *more, reserves, slot])
            return slot
        oldest = min(self._reserved, key=lambda lease: (words[lease], lease))
        slot = self._reserved[oldest][0]
        self._withdraw(oldest)
        return slot

    def _withdraw_all(self, queue: int) -> None:
        for lease in list(chain(self.file.words, queue + HEAD)):
            self._withdraw(lease)

    def _withdraw(self, lease: int, *, is_dead: bool = False) -> None:
        """Make a lease with a reserve an ordinary one, and return what was not handed out.

        :param is_dead: whether its member is dead
        """
        words = self.file.words
        reserve, number = divmod(words[lease + MEMBER], 1 << RESERVE)
        if not reserve:
            return
        self._reserved.pop(lease, None)  # before: the reserve may be used again after it
        if number != self.number and not is_dead:
            for member in chain(words, MEMBERS):
                if words[member + NUMBER] == number:
                    words[member + WITHDRAWALS] += 1
            fence_all()  # if refused, a message may come twice at the very end of its time
        bits, kind = open_bits(words, lease), words[lease + KIND]
        rest, queue = bits & ~words[reserve + HANDED], kind >> QUEUE
        if rest and rest != bits:
            self._split(lease, rest, NOBODY, (0, 0, unhanded(kind)))
            words = self.file.words
        end = [reserve + LEASE, 0]
        acked = words[lease + ACKED] | words[reserve + ACKS]
        if not bits:
            self._free(lease, end)
            return
        changes = [lease + ACKED, acked]
        if rest == bits:
            until, kind = 0, unhanded(kind) | kind & RETURNED - 1
            changes += [lease, NOBODY, lease + MEMBER, 0, lease + KIND, kind]
        else:
            until = words[reserve + UNTIL]
            changes += [lease + MEMBER, number]
        words[queue + DUE] = min(words[queue + DUE], until)
        self.file.apply([*changes, lease + DEADLINE, until, *end])

    def withdraw(self) -> None:
        """Make all leases of this member ordinary ones."""
        self.file.run(self._withdraw_own)

    def _withdraw_own(self) -> None:
        for reserve in chain(self.file.words, self._place + RESERVES):
            if lease := self.file.words[reserve + LEASE]:
                self._withdraw(lease)

    def begin(self, handles: list[Handle], now_ms: int, deadline_ms: int) -> bool:
        """Hand out messages that were reserved, with all before them in their leases.

        ``False`` if that needs the turn.
        """
        return self.file.run_here(self._begin, handles, now_ms, deadline_ms)

    def _begin(self, handles: list[Handle], now_ms: int, deadline_ms: int) -> bool:
        words = self.file.words
        if words[self._place + WITHDRAWALS] != self._withdrawals:
            return False
        found = _bits_of(handles, self._reserved)
        if found is None:
            return False
        for reserve, bits in found:
            handed = words[reserve + HANDED]
            if now_ms != words[reserve + BEGUN]:
                if not handed & ~words[reserve + ACKS]:
                    words[reserve + BEGUN] = now_ms
                elif now_ms > words[reserve + BEGUN] + _TOGETHER_MS:
                    return False
                words[reserve + UNTIL] = max(words[reserve + UNTIL], deadline_ms)
            words[reserve + HANDED] = (1 << bits.bit_length()) - 1
        return bool(words[self._place + WITHDRAWALS] == self._withdrawals)

    # --- handing out again ---

    def due(self, queues: Collection[int], now_ms: int) -> list[int]:
        """The leases of ``queues`` with messages whose invisible time is over, in their order."""
        words = self.file.words
        for queue in queues:
            if words[queue + DUE] <= now_ms:
                return self._searched(set(queues), now_ms)
        return []

    def _searched(self, queues: set[int], now_ms: int) -> list[int]:
        """A search looks at all leases of the group: it takes a tenth of the time at most."""
        if time.monotonic() < self._search_s:
            return []
        begun_s = time.thread_time()
        found = self.file.run(self._due, queues, now_ms)
        spent_s = time.thread_time() - begun_s
        if spent_s > _SHORT_SEARCH_S:
            self._search_s = time.monotonic() + 9 * spent_s
        return found

    def _due(self, queues: set[int], now_ms: int) -> list[int]:
        words = self.file.words
        living = {words[member + NUMBER] for member in chain(words, MEMBERS)}
        end, found = words[USED], list[tuple[int, int, int]]()
        earliest = dict.fromkeys(queues, NONE)
        columns = (words[FIRST_SLOT + word : end : SLOT].tolist() for word in (0, DEADLINE, MEMBER))
        for row, (number, deadline_ms, holder) in enumerate(zip(*columns, strict=False)):
            if number:
                lease = FIRST_SLOT + row * SLOT
                queue = words[lease + KIND] >> QUEUE
                if queue not in earliest:
                    continue
                until_ms = deadline_of(words, lease) if holder > MEMBER_BITS else deadline_ms
                member = holder & MEMBER_BITS
                if until_ms <= now_ms or (member and member not in living):
                    found.append((queue, words[lease + START], lease))
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
        living = {words[member + NUMBER] for member in chain(words, MEMBERS)}
        done = 0
        for lease in leases:
            if len(found) >= most:
                break
            done += 1
            if self._is_due(lease, living, now_ms):
                self._withdraw(lease)
                words = self.file.words
            if self._is_due(lease, living, now_ms):
                offsets = open_offsets(words, lease)
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
        if deadline_of(words, lease) <= now_ms:
            return True
        member = words[lease + MEMBER] & MEMBER_BITS
        return bool(member and member not in living)

    def _again(
        self, lease: int, offsets: Sequence[int], number: int, deadline_ms: int
    ) -> list[Claim]:
        words = self.file.words
        kind, start = words[lease + KIND], words[lease + START]
        attempt = min((kind >> ATTEMPT & MOST_ATTEMPTS) + 1, MOST_ATTEMPTS)
        queue, returned = kind >> QUEUE, kind & RETURNED
        more = deadline_ms, self.number, queue << QUEUE | attempt << ATTEMPT | returned
        place = self._give(lease, mask_of(start, offsets), number, more)
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
        living = {words[member + NUMBER] for member in chain(words, MEMBERS)}
        leases = list(chain(words, queue + HEAD))
        if not all(self._is_due(each, living, now_ms) for each in leases):
            mine = (words[each + DEADLINE] for each in leases)
            later = [each for each in mine if each > now_ms]
            if all(words[each + MEMBER] in (0, *living) for each in leases):
                words[queue + DUE] = min(later, default=now_ms)
            return []
        places = sorted((at, each) for each in leases for at in open_offsets(words, each))[:most]
        found = list[Claim]()
        for lease in dict.fromkeys(lease for _, lease in places):
            chosen = [at for at, each in places if each == lease]
            found += self._again(lease, chosen, number, deadline_ms)
        return sorted(found, key=lambda claim: claim.offset)

    # --- outcomes ---

    def remove(self, handles: list[Handle]) -> bool:
        """Acknowledge; returns whether all were still handed out by that hand-out."""
        done = self.file.run_here(self._remove_reserved, handles)
        return self.file.run(self._remove, handles) if done is None else done

    def _remove_reserved(self, handles: list[Handle]) -> bool | None:
        """``None`` if that needs the turn."""
        words, done = self.file.words, True
        if words[self._place + WITHDRAWALS] != self._withdrawals:
            return None
        found = _bits_of(handles, self._reserved)
        if found is None:
            return None
        for reserve, bits in found:
            acks = words[reserve + ACKS]
            mine = bits & words[reserve + HANDED] & ~acks
            words[reserve + ACKS] = acks | mine
            done &= mine == bits
        return done if words[self._place + WITHDRAWALS] == self._withdrawals else None

    def _remove(self, handles: Sequence[Handle]) -> bool:
        words, done = self.file.words, True
        bits = dict[int, int]()
        for lease, number, offset in handles:
            if not (lease < len(words) and words[lease] == number):
                done = False
                continue
            bit = 1 << offset - words[lease + START]
            if not open_bits(words, lease) & bit:
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
        return bool(open_bits(words, lease) >> offset - words[lease + START] & 1)

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
        if 1 << offset - words[lease + START] != open_bits(words, lease):
            deadline_ms = max(deadline_ms, words[lease + DEADLINE])
        queue = words[lease + KIND] >> QUEUE
        words[queue + DUE] = min(words[queue + DUE], deadline_ms)
        words[lease + DEADLINE] = deadline_ms
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
        kind = words[lease + KIND] >> ATTEMPT << ATTEMPT | RETURNED
        if orderly:
            for each in list(chain(words, (kind >> QUEUE) + HEAD)):
                later = [at for at in open_offsets(words, each) if at > offset]
                if later:
                    self._unhand(each, mask_of(words[each + START], later), deadline_ms)
                    words = self.file.words
        bit = 1 << offset - words[lease + START]
        self._give(lease, bit, NOBODY, (deadline_ms, 0, kind))
        return True

    def _unhand(self, lease: int, bits: int, deadline_ms: int) -> None:
        """Return messages as if never handed out."""
        kind = unhanded(self.file.words[lease + KIND])
        self._give(lease, bits, NOBODY, (deadline_ms, 0, kind))

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
            self._unhand(lease, open_bits(words, lease), deadline_ms)

    def postpone(self, handle: Handle, deadline_ms: int) -> None:
        """Undo a claim; the message is visible again at ``deadline_ms``."""
        self.file.run(self._postpone, handle, deadline_ms)

    def _postpone(self, handle: Handle, deadline_ms: int) -> None:
        if self._has(handle):
            lease, _, offset = handle
            self._unhand(lease, 1 << offset - self.file.words[lease + START], deadline_ms)

    def next_due_ms(self, queues: Iterable[int]) -> int:
        """A time before which no message of ``queues`` is visible again."""
        words = self.file.words
        return min((words[queue + DUE] for queue in queues), default=NONE)

    def _restart(self, entry: int, at: int | None, stored: int) -> None:
        """Drop all leases of a queue; ``at`` is the next offset, ``stored`` the committed one."""
        self._withdraw_all(entry)
        words, counts = self.file.words, at is not None
        changes = [entry + NEXT, at or 0, entry + STORED, stored, entry + INTENDED, stored]
        changes += [entry + HEAD, 0, entry + TAIL, 0, entry + COUNTS, int(counts)]
        self.file.drop(words[entry + HEAD], changes)
