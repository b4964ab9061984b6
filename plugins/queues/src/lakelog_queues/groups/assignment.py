"""Assigns the queues of a group to its members.

As RocketMQ's ``AllocateMessageQueueAveragelyByCircle``, over the queues of all topics together.
"""

from __future__ import annotations

from collections.abc import Collection

from lakelog.format.queue_offsets import Queue


def share_of(member: int, members: Collection[int], queues: Collection[Queue]) -> list[Queue]:
    """The queues of one member, sorted; empty if ``members`` does not contain it.

    Every queue belongs to one member, and the shares differ by one queue at most. The result
    depends on the arguments only, not on their order.

    >>> share_of(7, {3, 7}, [("t", 0), ("t", 1), ("t", 2)])
    [('t', 1)]
    """
    in_turn = sorted(members)
    if member not in members:
        return []
    return sorted(queues)[in_turn.index(member) :: len(in_turn)]
