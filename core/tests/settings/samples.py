"""Settings classes of plugins that exist only here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from lakelog.settings.effective import Settings

Resolve: TypeAlias = Callable[..., Settings]


@attrs.frozen(kw_only=True)
class TimedSettings:
    """Flushes now and then.

    :ivar flush_interval_ms: pause between two flushes
    :ivar flush_least_pages: fewer dirty pages than this
        are not flushed
    :ivar names: for tests
    """

    flush_interval_ms: int = 500
    flush_least_pages: int = attrs.field(default=4, validator=attrs.validators.ge(0))
    flush_thorough_interval_ms: int = 10_000
    names: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class GroupCommitSettings:
    """Flushes for many at once."""

    sync_flush_timeout_ms: int = 5_000


@attrs.frozen(kw_only=True)
class QueueSettings:
    """Queues."""

    file_entries: int = 300_000


@attrs.frozen(kw_only=True)
class IndexSettings:
    """The index."""

    slots: int = 5_000_000
    entries: int = 20_000_000


@attrs.frozen(kw_only=True)
class SinkSettings:
    """A sink that must be told where to go."""

    target: str
    share_ratio: float = 0.5


SECTIONS: Mapping[str, type[Any]] = {
    "timed": TimedSettings,
    "group-commit": GroupCommitSettings,
    "consume-queue": QueueSettings,
    "hash-index": IndexSettings,
    "sink": SinkSettings,
}
