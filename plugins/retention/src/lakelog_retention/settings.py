"""Sections ``[retention]`` and ``[psutil]``.

Hours of the day are ``"04"`` or ``"04;16"``, as in RocketMQ. Whole hours count, from the first
minute to the last. When the clocks change, an hour that is skipped does not occur, and one that is
repeated occurs twice.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Any, Final

import attrs
from attrs import field, frozen, validators

from lakelog.hooks import DeletionRate

HOURS: Final = range(24)


def parse_hours(text: str) -> tuple[int, ...]:
    """The hours in ``text``, in its order; raises ``ValueError``.

    >>> parse_hours("04"), parse_hours("04; 16")
    ((4,), (4, 16))
    """
    return tuple(_hour(part.strip(), text) for part in text.split(";"))


def _hour(part: str, text: str) -> int:
    if not (part.isascii() and part.isdigit() and int(part) in HOURS):
        raise ValueError(f"expected hours from 00 to 23, such as '04' or '04;16', got {text!r}")
    return int(part)


def local_time(now_ms: int, time_zone: str | None) -> datetime:
    """The local time of day.

    :param now_ms: ms since 1970
    :param time_zone: a name such as ``Europe/Berlin``; ``None`` is the machine's
    """
    return datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(_zone(time_zone))


def _zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    from zoneinfo import ZoneInfo  # rarely needed

    return ZoneInfo(name)


def _hours(_settings: object, _field: attrs.Attribute[Any], value: str) -> None:
    parse_hours(value)


def _time_zone(_settings: object, _field: attrs.Attribute[Any], value: str | None) -> None:
    try:
        _zone(value)
    except (KeyError, OSError, ValueError) as error:  # not found, a directory, a path
        raise ValueError(
            f"no time zone {value!r} is known here; expected a name such as 'Europe/Berlin'"
        ) from error


@frozen(kw_only=True)
class RetentionSettings:
    """Settings of ``retention``; the defaults are RocketMQ's.

    :ivar file_reserved_hours: how long a segment is kept after its last message was stored
        (``fileReservedTime``)
    :ivar delete_when: hours of the day in which expired segments are deleted: ``"04"``, ``"04;16"``
        (``deleteWhen``)
    :ivar time_zone: time zone of these hours, such as ``"Europe/Berlin"``; by default the machine's
    :ivar clean_forcibly: whether unexpired segments are deleted when the disk is nearly full
        (``cleanFileForciblyEnable``)
    :ivar max_total_bytes: largest total size of the segments; RocketMQ has no such limit
    :ivar max_segments: largest number of segments; RocketMQ has no such limit
    :ivar delete_files_batch_max: largest number of deletions per round (``deleteFileBatchMax``)
    :ivar delete_interval_ms: pause between two deletions (``deleteCommitLogFilesInterval``)
    :ivar remove_empty_queues: whether queues of topics without remaining messages are removed too
    """

    file_reserved_hours: int = field(default=72, validator=validators.ge(0))
    delete_when: str = field(default="04", validator=_hours)
    time_zone: str | None = field(default=None, validator=_time_zone)
    clean_forcibly: bool = True
    max_total_bytes: int | None = field(
        default=None, validator=validators.optional(validators.ge(1))
    )
    max_segments: int | None = field(default=None, validator=validators.optional(validators.ge(1)))
    delete_files_batch_max: int = field(default=10, validator=validators.ge(1))
    delete_interval_ms: int = field(default=100, validator=validators.ge(0))
    remove_empty_queues: bool = False

    @property
    def hours(self) -> tuple[int, ...]:
        """The hours of :attr:`delete_when`."""
        return parse_hours(self.delete_when)

    @property
    def pace(self) -> DeletionRate:
        """How fast the store may delete."""
        return DeletionRate(
            batch_max=self.delete_files_batch_max,
            interval_ms=self.delete_interval_ms,
        )


def _ratio(_settings: object, _field: attrs.Attribute[Any], value: float) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"expected a share above 0 and at most 1, got {value}")


@frozen(kw_only=True)
class WatcherSettings:
    """Settings of ``psutil``; ratios are used space to all usable space.

    :ivar max_used_ratio: above it, expired segments are deleted at any hour
        (``diskMaxUsedSpaceRatio``)
    :ivar clean_forcibly_ratio: above it, unexpired segments are deleted
        (``diskSpaceCleanForciblyRatio``)
    :ivar warning_ratio: above it, puts are refused until usage falls to ``clean_forcibly_ratio``
        (``diskSpaceWarningLevelRatio``)
    :ivar min_free_bytes: below it, puts are refused until 1.5 times as much is free; below 2 times,
        expired segments are deleted, below 1.5 times others too; 0 is no limit
    :ivar min_free_inodes: the same for the number of files that can still be created
    """

    max_used_ratio: float = field(default=0.75, validator=_ratio)
    clean_forcibly_ratio: float = field(default=0.85, validator=_ratio)
    warning_ratio: float = field(default=0.90, validator=_ratio)
    min_free_bytes: int = field(default=0, validator=validators.ge(0))
    min_free_inodes: int = field(default=0, validator=validators.ge(0))

    def __attrs_post_init__(self) -> None:
        names = ("max_used_ratio", "clean_forcibly_ratio", "warning_ratio")
        values = [getattr(self, name) for name in names]
        for at in range(2):
            if values[at] > values[at + 1]:
                raise ValueError(
                    f"{names[at]}={values[at]} must not be above {names[at + 1]}={values[at + 1]}"
                )
