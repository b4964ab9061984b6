"""Sections ``[maintenance]``, ``[retention]`` and ``[psutil]``."""

from __future__ import annotations

from typing import Any

import attrs
from attrs import field, frozen, validators

from lakelog.interfaces import DeletionRate
from lakelog_retention.hours import check_zone, parse_hours


@frozen(kw_only=True)
class MaintenanceSettings:
    """The section ``maintenance``: when disk space is freed, and what followers retain.

    :ivar first_round_ms: delay after opening before the cleaner and the disk-space watcher first
        run
    :ivar interval_ms: pause between the end of a round and the next one
    :ivar pin_expires_after_ms: a follower's pin that was not renewed for this long retains nothing;
        empty is never
    :ivar override_pins: whether segments are deleted that a follower still needs; otherwise they
        stay, and puts are refused once the disk is full
    """

    first_round_ms: int = field(default=60_000, validator=validators.ge(0))
    interval_ms: int = field(default=10_000, validator=validators.ge(1))
    pin_expires_after_ms: int | None = field(
        default=None, validator=validators.optional(validators.ge(1))
    )
    override_pins: bool = False


def _hours(_settings: object, _field: attrs.Attribute[Any], value: str) -> None:
    parse_hours(value)


def _time_zone(_settings: object, _field: attrs.Attribute[Any], value: str | None) -> None:
    if value is not None:
        check_zone(value)


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
    :ivar destroy_forcibly_after_ms: longest wait for readers of a segment before it is deleted
        (``destroyMapedFileIntervalForcibly``)
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
    destroy_forcibly_after_ms: int = field(default=120_000, validator=validators.ge(0))
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
            destroy_forcibly_after_ms=self.destroy_forcibly_after_ms,
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
