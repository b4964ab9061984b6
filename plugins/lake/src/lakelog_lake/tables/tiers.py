"""Chooses groups of small items to merge, so that each is rewritten only a few times.

Ten or more items of one size, within a factor of ten, are merged. So each is rewritten once per
power of ten, and at most nine of each size remain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import attrs

FANOUT: Final = 10
"""Number of items of one size that are merged."""


@attrs.frozen
class Weight:
    """The size of an item.

    :ivar count: the number whose power of ten is the size class
    :ivar bytes: bytes to rewrite in a merge
    """

    count: int
    bytes: int


def mergeable(things: Sequence[Weight], most_bytes: int) -> list[list[int]]:
    """Return groups of indices of items to merge.

    :param most_bytes: most bytes of one group

    >>> mergeable([Weight(1, 99)] * 11 + [Weight(10, 99)] * 8, 10_000)
    [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]]
    """
    tiers: dict[int, list[list[int]]] = defaultdict(list)
    for place, each in enumerate(things):
        tiers[_tier(each.count)].append([place])
    tier = 0
    while tier <= max(tiers, default=-1):
        together = sorted(place for group in tiers[tier] for place in group)
        is_small = sum(things[place].bytes for place in together) <= most_bytes
        if len(tiers[tier]) >= FANOUT and is_small:
            del tiers[tier]
            tiers[_tier(sum(things[place].count for place in together))].append(together)
        tier += 1
    return [group for groups in tiers.values() for group in groups if len(group) > 1]


def _tier(count: int) -> int:
    return len(str(count)) - 1  # as FANOUT is ten
