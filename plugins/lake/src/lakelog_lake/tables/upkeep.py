"""The history that a table keeps while messages land: a setting of the table itself.

``lakelog.history``, of an Iceberg table's properties or a Delta table's configuration::

    100     the newest 100 versions
    12h     each version for this long after it was replaced; also 7d, 30m, 90s
    off     all versions: dispatchers remove none

Tables created by lakelog have the setting. Other tables keep all versions until it is set.

Chooses groups of small items to merge, so that each is rewritten only a few times.

Ten or more items of one size, within a factor of ten, are merged. So each is rewritten once per
power of ten, and at most nine of each size remain.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import attrs

from lakelog.errors import SettingsError

HISTORY: Final = "lakelog.history"
"""The name of the setting."""

DEFAULT_HISTORY: Final = "100"
"""The default: about a minute of frequent commits; a larger number makes each commit slower."""

OFF: Final = "off"

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

_DURATION: Final = re.compile(r"(\d+)([smhdw])")


@attrs.frozen
class KeptVersions:
    """The versions that a table keeps.

    :ivar versions: number of newest versions that stay in any case
    :ivar seconds: time for which a version stays after it was replaced
    """

    versions: int = 1
    seconds: int = 0


def kept(text: str | None, key: str = HISTORY) -> KeptVersions | None:
    """Parse a setting; ``None`` if no version is to be removed.

    Raises :class:`~lakelog.errors.SettingsError`.

    >>> kept("100"), kept("1h"), kept("off")
    (KeptVersions(versions=100, seconds=0), KeptVersions(versions=1, seconds=3600), None)
    """
    value = OFF if text is None else text.strip()
    if value == OFF:
        return None
    if value.isdecimal() and int(value):
        return KeptVersions(versions=int(value))
    if value.isdecimal() or _DURATION.fullmatch(value) is None:
        raise SettingsError(
            f"{text!r} is not a history: write a number of versions, a time such as 12h, or off",
            key=key,
        )
    return KeptVersions(seconds=duration(value, key))


def duration(text: str, key: str = "--older-than") -> int:
    """Parse a duration to seconds; raises :class:`~lakelog.errors.SettingsError`.

    >>> duration("7d"), duration("90s")
    (604800, 90)
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise SettingsError(f"{text!r} is not a duration; write 7d, 12h, 30m or 90s", key=key)
    return int(found[1]) * _SECONDS[found[2]]


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
