"""What a simulation runs: which strategies, and what these promise."""

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
    :ivar plugins: plugins that offer them; ``None`` takes those that are installed
    :ivar settings: more settings, sections included, as for :func:`lakelog.open`
    :ivar put_is_durable: whether ``PUT_OK`` promises that a power cut leaves the message; if not,
        only the position ``flushed`` does. ``None``: what the strategies of lakelog promise; one
        that is not lakelog's promises it
    :ivar body_bytes: if given, all messages have this size, one queue and no key: what an earlier
        life left behind the end then fits behind new records
    :ivar key_bytes: if given, all messages have one key of this length: a tear then hits it often
    :ivar deletions: whether topics are removed now and then
    :ivar cleaning: whether the store's cleaner is let loose now and then; settings must name one
        that plugins offer
    :ivar failing_sync: whether in each run one sync of a file fails with ``EIO``: the store must
        then refuse everything, as what was dirty may never reach the disk, whatever later syncs say
    :ivar interleave: whether in most runs other threads put, and roll the log, in the middle of its
        commits and syncs; runs of ``none`` and ``inline`` without it follow from the seed alone
    :ivar in_memory: whether stores may stand on tmpfs, which is faster; the writer ``direct``
        refuses it
    :ivar steps: how many things a run does to the store
    :ivar points_per_run: at how many points of a run crashes are tried, beside its clean closes;
        0: only these
    :ivar images_per_whole_check: one of so many images is opened by ``lakelog.open``, takes puts
        and is closed; the others go the short way (:mod:`lakelog_testing.crash.short`)
    :ivar images_per_second_crash: one of so many images is recovered, used, and crashed again
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
    images_per_whole_check: int = 25

    @in_memory.default
    def _in_memory(self) -> bool:
        return self.writer not in _ON_DISKS

    @property
    def promises(self) -> bool:
        """Whether ``PUT_OK`` promises durability."""
        if self.put_is_durable is not None:
            return self.put_is_durable
        return _PROMISES.get(self.flush, True)

    @property
    def has_threads(self) -> bool:
        """Whether several threads put, as that is what the flush strategy is for."""
        return self.flush not in _WITHOUT_WAITING

    def told(self) -> str:
        """How to make it again, but for plugins: what is not as it is by itself."""
        plain = CrashPlan(writer=self.writer)
        fields = [each.name for each in attrs.fields(CrashPlan) if each.name != "plugins"]
        given = [
            f"{name}={getattr(self, name)!r}"
            for name in fields
            if name in ("writer", "flush") or getattr(self, name) != getattr(plain, name)
        ]
        return f"CrashPlan({', '.join(given)})"

    def arguments(self, sections: Sequence[str]) -> dict[str, Any]:
        """Settings for :func:`lakelog.open`: everything small.

        :param sections: the sections that are known
        """
        small = {name: value for name, value in _SMALL.items() if name in sections}
        return {
            **small,
            "segment_size_bytes": SEGMENT_BYTES,
            "preallocate": False,
            "allocation_step_bytes": STEP_BYTES,
            "record_crc": True,  # without it, a record torn outside of its body can pass for whole
            "writer": self.writer,
            "flush": self.flush,
            **self.settings,
        }
