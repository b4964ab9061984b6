"""Settings of a table: the history that it keeps while messages land, and its compression.

Also what counts where a table does not show its position.

``lakelog.history``, of an Iceberg table's properties or a Delta table's configuration::

    5d      each version for this long after it was replaced, but at most MOST_VERSIONS; also 12h,
            30m, 90s
    100     the newest 100 versions
    off     all versions: dispatchers remove none

Tables created by lakelog have the setting. Other tables keep all versions until it is set.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeVar

import attrs

from lakelog.errors import SettingsError
from lakelog.times import duration_ms

HISTORY: Final = "lakelog.history"
"""The name of the setting."""
MAX_AGE: Final = "history.expire.max-snapshot-age-ms"
MIN_KEPT: Final = "history.expire.min-snapshots-to-keep"
"""Iceberg's properties, for a history that is a time; all engines follow them."""
DEFAULT_HISTORY: Final = "5d"
"""The default, as Iceberg's: a stream that reads the table may stop for so long."""
MOST_VERSIONS: Final = 5000
"""Most versions that are kept for their age, as a commit writes all (Iceberg), or lists them."""
DEFAULT_INTERVAL_MS: Final = 10_000
"""Time between passes: so MOST_VERSIONS last for 14 hours, and files do not become crumbs."""
OFF: Final = "off"


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
    if duration_ms(value) is None:
        raise SettingsError(
            f"{text!r} is not a history: write a number of versions, a time such as 12h, or off",
            key=key,
        )
    return KeptVersions(seconds=duration(value, key))


def duration(text: str, key: str = "--older-than") -> int:
    """Parse a duration to seconds, rounded up; raises :class:`~lakelog.errors.SettingsError`.

    >>> duration("7d"), duration("90s")
    (604800, 90)
    """
    found_ms = duration_ms(text)
    if found_ms is None:
        raise SettingsError(f"{text!r} is not a duration; write 7d, 12h, 30m or 90s", key=key)
    return -(-found_ms // 1000)


class Resume(StrEnum):
    """What a user trusts where no commit shows the position of a store."""

    POSITION = "position"
    ROWS = "rows"

    @classmethod
    def of(cls, text: str | None) -> Resume | None:
        """Parse a name, or ``None``; raises :class:`~lakelog.errors.SettingsError`."""
        return None if text is None else _one_of(cls, text, "resume")


class ParquetCompression(StrEnum):
    """Compression of data files; ``auto`` is zstd, except for bodies that do not shrink."""

    AUTO = "auto"
    ZSTD = "zstd"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    GZIP = "gzip"
    NONE = "none"

    @classmethod
    def of(cls, text: str) -> ParquetCompression:
        """Parse a name; raises :class:`~lakelog.errors.SettingsError`."""
        return _one_of(cls, text, "compression")


_Named = TypeVar("_Named", bound=StrEnum)


def _one_of(names: type[_Named], text: str, key: str) -> _Named:
    try:
        return names(text)
    except ValueError:
        raise SettingsError(f"{text!r} is not one of {', '.join(names)}", key=key) from None


@attrs.frozen
class FileSettings:
    """What a table says of its data files; a dispatcher may be told otherwise.

    :ivar compression: ``auto`` if the table does not say it
    :ivar file_bytes: their approximate largest size; ``None`` if the table does not say it
    :ivar level: level of the compression; ``None`` if the table does not say it
    """

    compression: ParquetCompression = ParquetCompression.AUTO
    file_bytes: int | None = None
    level: int | None = None
