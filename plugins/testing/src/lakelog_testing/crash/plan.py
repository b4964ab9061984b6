"""The configuration of a simulation: the strategies, and their guarantees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs

SEGMENT_BYTES: Final = 8192
STEP_BYTES: Final = 4096
_PROMISES: Final = MappingProxyType(
    {"inline": True, "group-commit": True, "none": False, "timed": False}
)
WRITERS: Final = ("file", "mmap", "staged", "direct")
FLUSHES: Final = ("none", "timed", "inline", "group-commit")
_WITHOUT_WAITING: Final = ("none", "inline")
_ON_DISKS: Final = ("direct",)
_SMALL: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "consume-queue": {"file_entries": 32},
        "hash-index": {"slots": 8, "entries": 24},
        "timed": {"flush_interval_ms": 2, "flush_least_pages": 1},
        "staged": {"commit_interval_ms": 2, "commit_least_pages": 1, "pool_size": 16},
        "direct": {"buffer_bytes": 4096, "buffers": 4, "commit_interval_ms": 2},
    }
)


@attrs.frozen(kw_only=True)
class CrashPlan:
    """A store to crash.

    :ivar writer: the writer, by name
    :ivar flush: the flush strategy, by name
    :ivar plugins: plugins that offer them; ``None`` uses the installed ones
    :ivar settings: further settings and sections, as for :func:`lakelog.open`
    :ivar put_is_durable: whether a message with ``PUT_OK`` survives a power cut; otherwise only
        bytes before ``flushed`` do. ``None`` uses the guarantee of lakelog's strategies, and
        ``True`` for others
    :ivar body_bytes: if given, all messages have this size, one queue and no key, so that leftovers
        after the end of the log fit behind new records
    :ivar key_bytes: if given, all messages have one key of this length, which tears then hit often
    :ivar deletions: whether topics are removed occasionally
    :ivar cleaning: whether the cleaner runs occasionally; settings must name one that plugins offer
    :ivar failing_sync: whether one file sync of each run fails with ``EIO``; the store must then
        refuse everything, since dirty pages may never reach the disk, whatever later syncs report
    :ivar interleave: whether in most runs other threads put, and roll the log, during its commits
        and syncs; without it, runs of ``none`` and ``inline`` are determined by the seed
    :ivar in_memory: whether stores may be on tmpfs, which is faster; the writer ``direct`` refuses
        it
    :ivar steps: number of actions per run
    :ivar points_per_run: number of crash points tried per run, beside its clean closes; 0: only
        these
    :ivar images_per_second_crash: one of this many images is recovered, used, and crashed again
    """

    writer: str = "file"
    flush: str = "inline"
    plugins: Sequence[object] | None = None
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    put_is_durable: bool | None = None
    body_bytes: int | None = None
    key_bytes: int | None = None
    deletions: bool = True
    cleaning: bool = False
    failing_sync: bool = False
    interleave: bool = True
    in_memory: bool = attrs.field()
    steps: int = 16
    points_per_run: int = 30
    images_per_second_crash: int = 24

    @in_memory.default
    def _in_memory(self) -> bool:
        return self.writer not in _ON_DISKS

    @property
    def promises(self) -> bool:
        """Whether ``PUT_OK`` guarantees durability."""
        if self.put_is_durable is not None:
            return self.put_is_durable
        return _PROMISES.get(self.flush, True)

    @property
    def has_threads(self) -> bool:
        """Whether several threads put, for flush strategies that serve several threads."""
        return self.flush not in _WITHOUT_WAITING

    def expression(self) -> str:
        """The expression that recreates the plan without plugins: all non-default fields."""
        plain = CrashPlan(writer=self.writer)
        fields = [each.name for each in attrs.fields(CrashPlan) if each.name != "plugins"]
        given = [
            f"{name}={getattr(self, name)!r}"
            for name in fields
            if name in ("writer", "flush") or getattr(self, name) != getattr(plain, name)
        ]
        return f"CrashPlan({', '.join(given)})"

    def arguments(self, sections: Sequence[str]) -> dict[str, Any]:
        """Settings for :func:`lakelog.open`, with small sizes.

        :param sections: the known sections
        """
        small = {name: value for name, value in _SMALL.items() if name in sections}
        return {
            **small,
            "segment_size_bytes": SEGMENT_BYTES,
            "preallocate": False,
            "allocation_step_bytes": STEP_BYTES,
            "record_crc": True,  # without it, a record torn outside of its body can pass as whole
            "writer": self.writer,
            "flush": self.flush,
            **self.settings,
        }
