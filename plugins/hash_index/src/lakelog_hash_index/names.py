"""Names of index files: unique local creation times, ``yyyyMMddHHmmssSSS``."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

_DIGITS: Final = 17
_SECONDS: Final = "%Y%m%d%H%M%S"
_MILLISECOND: Final = timedelta(milliseconds=1)


def is_name(name: str) -> bool:
    """Whether ``name`` has the form of an index file's name."""
    return len(name) == _DIGITS and name.isascii() and name.isdigit()


def name_of(moment: datetime) -> str:
    """The name of a file created at ``moment``.

    >>> name_of(datetime(2026, 11, 20, 23, 23, 52, 5999))
    '20261120232352005'
    """
    return f"{moment:{_SECONDS}}{moment.microsecond // 1000:03d}"


def next_name(moment: datetime, last: str | None) -> str:
    """The name of a new file; names ascend in order of creation, even if the clock goes back.

    :param moment: local time, without a zone
    :param last: the newest existing name
    """
    name = name_of(moment)
    if last is None or name > last:
        return name
    try:
        return name_of(_moment_of(last) + _MILLISECOND)
    except ValueError:  # digits that are not a time
        return str(int(last) + 1).zfill(_DIGITS)


def _moment_of(name: str) -> datetime:
    seconds = datetime.strptime(name[:-3], _SECONDS)  # noqa: DTZ007  # local, as in the name
    return seconds + int(name[-3:]) * _MILLISECOND
