"""How much of its history a table keeps while messages land: a setting of the table itself.

``lakelog.history``, of an Iceberg table's properties or a Delta table's configuration::

    100     the newest 100 versions
    12h     each version for so long after another one took its place; also 7d, 30m, 90s
    off     all of them: dispatchers remove none

Tables that lakelog makes have it. One that somebody else made has not, and keeps all, until it is
told otherwise.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from lakelog.errors import SettingsError

HISTORY: Final = "lakelog.history"
"""The name of the setting."""
DEFAULT_HISTORY: Final = "100"
"""Of tables that lakelog makes: about a minute of trickle, at the price of each commit."""
OFF: Final = "off"
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"(\d+)([smhdw])")


@attrs.frozen
class KeptVersions:
    """What stays besides the newest version.

    :ivar versions: so many of the newest ones, in any case
    :ivar seconds: a version stays for so long after another one took its place
    """

    versions: int = 1
    seconds: int = 0


def kept(text: str | None, key: str = HISTORY) -> KeptVersions | None:
    """What a setting says; ``None`` where nothing is to be removed.

    Raises :class:`~lakelog.errors.SettingsError`.

    >>> kept("100"), kept("1h"), kept("off")
    (Kept(versions=100, seconds=0), Kept(versions=1, seconds=3600), None)
    """
    said = OFF if text is None else text.strip()
    if said == OFF:
        return None
    if said.isdecimal() and int(said):
        return KeptVersions(versions=int(said))
    if said.isdecimal() or _DURATION.fullmatch(said) is None:
        raise SettingsError(
            f"{text!r} says no history: write a number of versions, a time such as 12h, or off",
            key=key,
        )
    return KeptVersions(seconds=duration(said, key))


def duration(text: str, key: str = "--older-than") -> int:
    """Seconds; raises :class:`~lakelog.errors.SettingsError`.

    >>> duration("7d"), duration("90s")
    (604800, 90)
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise SettingsError(f"{text!r} is no duration; write 7d, 12h, 30m or 90s", key=key)
    return int(found[1]) * _SECONDS[found[2]]
