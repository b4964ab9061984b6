"""The words of a group's state: where each is, and what they say without the lock.

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
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from lakelog.files.filesystem import FileSystem, read_file
from lakelog.format.layout import OWN_DIR
from lakelog.format.queue_offsets import Queue
from lakelog_queues.groups.state_file import (
    FIRST_SLOT,
    GROUPS_DIR,
    MEMBERS,
    QUEUES,
    SLOT,
    USED,
    redo,
)

NOBODY: Final = 1
RUN: Final = 64
"""Longest run of offsets in one lease."""
# Words of a lease.
START, ACKED, DEADLINE, MEMBER, KIND, BEFORE, AFTER = range(1, 8)
# Words of a member.
NUMBER, PID, SEEN, WITHDRAWALS, RESERVES = range(1, 6)
# Words of a reserve.
LEASE, UNTIL, HANDED, ACKS, BEGUN = range(1, 6)
# Words of a queue.
ID, NEXT, STORED, INTENDED, HEAD, TAIL, DUE, _, CHAIN, COUNTS = range(1, 11)
NAME_AT: Final = 2 * SLOT
NAME_BYTES: Final = 56
# Parts of the kind of a lease: the count in bits 0 to 7, and the rest.
DELTA: Final = 8
RETURNED: Final = 1 << 15
ATTEMPT: Final = 16
MOST_ATTEMPTS: Final = 0xFFFF
QUEUE: Final = 32
# The member of a lease in bits 0 to 31, and the place of the reserve.
RESERVE: Final = 32
NO_RESERVE: Final = (0, 0, 0)
MEMBER_BITS: Final = (1 << RESERVE) - 1
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


def open_bits(words: memoryview, lease: int) -> int:
    """The bits that are not acknowledged."""
    bits = (1 << (words[lease + KIND] & 0xFF)) - 1 & ~words[lease + ACKED]
    reserve = words[lease + MEMBER] >> RESERVE
    return int(bits & ~words[reserve + ACKS] if reserve else bits)


def deadline_of(words: memoryview, lease: int) -> int:
    """The end of the invisible time."""
    reserve = words[lease + MEMBER] >> RESERVE
    return int(words[reserve + UNTIL] if reserve else words[lease + DEADLINE])


def open_offsets(words: memoryview, lease: int) -> list[int]:
    """The offsets that are not acknowledged."""
    return offsets_of(words, lease, open_bits(words, lease))


def offsets_of(words: memoryview, lease: int, bits: int) -> list[int]:
    """The offsets of some bits."""
    start = words[lease + START]
    return [start + bit for bit in range(bits.bit_length()) if bits >> bit & 1]


def run_start(words: memoryview, lease: int) -> int:
    """The first offset of the hand-out from which a lease comes."""
    return int(words[lease + START] - (words[lease + KIND] >> DELTA & 0x3F))


def mask_of(start: int, offsets: Iterable[int]) -> int:
    """The bits of some offsets."""
    bits = 0
    for each in offsets:
        bits |= 1 << each - start
    return bits


def is_whole(words: memoryview) -> bool:
    """Whether queues, lists of leases and members fit together; raises ``IndexError`` if not."""
    seen = list(chain(words, MEMBERS))
    for member in list(seen):
        reserves = list(chain(words, member + RESERVES))
        seen += reserves
        if any(words[each] for each in (member, *reserves)):
            return False
        for each in reserves:
            lease = words[each + LEASE]
            if lease and words[lease + MEMBER] >> RESERVE != each:
                return False
    for queue in chain(words, QUEUES, CHAIN):
        leases = list(chain(words, queue + HEAD))
        seen += [queue, *leases]
        keys = [run_start(words, lease) for lease in leases]
        before = [0, *leases]
        if keys != sorted(keys) or words[queue + TAIL] != before[-1]:
            return False
        for lease, former in zip(leases, before, strict=False):
            kind = words[lease + KIND]
            fits = words[lease + BEFORE] == former and kind >> QUEUE == queue and words[lease]
            reserve = words[lease + MEMBER] >> RESERVE
            is_open = words[reserve + LEASE] == lease if reserve else open_bits(words, lease)
            if not (fits and kind & 0xFF <= RUN and is_open):
                return False
    return len(seen) == len(set(seen))


def chain(words: memoryview, at: int, link: int = AFTER) -> Iterator[int]:
    """Places of slots, of which the word ``at`` has the first, and each the next one."""
    most = len(words) // SLOT
    while slot := words[at]:
        most -= 1
        if most < 0 or slot % SLOT or not FIRST_SLOT <= slot < words[USED]:
            raise IndexError
        yield slot
        at = slot + link


def slots_of(length: int) -> int:
    """Number of slots for the name of a topic of so many bytes."""
    return -(-length // NAME_BYTES)


def unhanded(kind: int) -> int:
    """The kind of a lease of messages as if never handed out, without the count."""
    attempt = max((kind >> ATTEMPT & MOST_ATTEMPTS) - 1, 0)
    return kind >> QUEUE << QUEUE | attempt << ATTEMPT | kind & RETURNED


def queue_at(words: memoryview, at: int) -> Queue:
    """Topic and queue id; raises ``UnicodeDecodeError`` if damaged."""
    length = words[at + ID] >> 32
    parts = range(at + NAME_AT, at + NAME_AT + slots_of(length) * SLOT, SLOT)
    name = b"".join(words[part + 1 : part + SLOT].tobytes() for part in parts)
    return name[:length].decode(), int(words[at + ID] & 0xFFFF_FFFF)


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
    return [list(words[at + NUMBER : at + SEEN + 1]) for at in chain(words, MEMBERS)]


def queues_in(words: memoryview) -> Iterator[tuple[Queue, int, list[LeaseStatus]]]:
    """Each queue, its next offset, and its leases; raises ``IndexError`` if damaged."""
    for queue in chain(words, QUEUES, CHAIN):
        if words[queue + COUNTS]:
            leases, next_offset = list[LeaseStatus](), words[queue + NEXT]
            for lease in chain(words, queue + HEAD):
                reserve, bits = words[lease + MEMBER] >> RESERVE, open_bits(words, lease)
                handed = bits & words[reserve + HANDED] if reserve else bits
                leases.append(_lease_at(words, lease, handed))
                next_offset = min([next_offset, *offsets_of(words, lease, bits & ~handed)])
            yield queue_at(words, queue), next_offset, leases


def _lease_at(words: memoryview, at: int, bits: int) -> LeaseStatus:
    kind, number = words[at + KIND], words[at]
    member, attempt = words[at + MEMBER] & MEMBER_BITS, kind >> ATTEMPT & MOST_ATTEMPTS
    return LeaseStatus(
        *(member, attempt, deadline_of(words, at)),
        *(taken_ms(number) if number > NOBODY else None, bool(kind & RETURNED)),
        offsets_of(words, at, bits),
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
            places = list(chain(words, QUEUES, CHAIN))
            offsets = {queue_at(words, at): words[at + NEXT] for at in places}
        except (IndexError, UnicodeDecodeError):
            continue  # it is damaged, and the first member will replace it
        yield folder / name, offsets
