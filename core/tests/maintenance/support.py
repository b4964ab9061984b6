"""A store whose maintenance uses the cleaner, watcher and clock of a test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from core.tests.store.support import fill as _fill
from core.tests.store.support import open_small
from lakelog import PutResult, Store
from lakelog.hooks import (
    CleaningContext,
    Context,
    Deletion,
    DiskReport,
    DiskState,
    DiskUsage,
    Factory,
    Kind,
    NoSettings,
    SegmentInfo,
)
from lakelog.hooks.hookspecs import hookimpl
from lakelog_testing import FakeClock, SurplusCleaner

NEVER_MS = 3 * 10**12
FEW = {"consume-queue": {"file_entries": 16}}


@attrs.define(eq=False)
class Keeping(SurplusCleaner):
    """A cleaner that records the arguments of its calls."""

    asked: list[tuple[list[SegmentInfo], CleaningContext]] = attrs.field(factory=list)

    def choose(
        self, segments: Sequence[SegmentInfo], situation: CleaningContext
    ) -> Sequence[Deletion]:
        self.asked.append((list(segments), situation))
        return super().choose(segments, situation)


@attrs.define(eq=False)
class FixedWatcher:
    """A watcher that reports the state set by a test."""

    state: DiskState = DiskState.OK
    reason: str = ""
    keep_free_bytes: int = 0
    asked: list[tuple[Path, ...]] = attrs.field(factory=list)

    def observe(self, paths: Sequence[Path]) -> DiskReport:
        self.asked.append(tuple(paths))
        disks = tuple(DiskUsage(path, 100, 10, 0.9, None, self.keep_free_bytes) for path in paths)
        return DiskReport(self.state, disks, self.reason)


@attrs.define(eq=False)
class MaintenancePlugin:
    """The cleaner, watcher and clock that a test controls; also the plugin that offers them."""

    cleaner: Any = attrs.field(factory=Keeping)
    watcher: FixedWatcher = attrs.field(factory=FixedWatcher)
    clock: Any = attrs.field(factory=FakeClock)
    deleting: list[int] = attrs.field(factory=list)
    deleted: list[int] = attrs.field(factory=list)
    pressure: list[DiskState] = attrs.field(factory=list)
    veto: int = -1

    @hookimpl
    def lakelog_cleaners(self) -> list[Factory]:
        return [Factory(Kind.CLEANER, "mine", NoSettings, self._cleaner)]

    @hookimpl
    def lakelog_disk_watchers(self) -> list[Factory]:
        return [Factory(Kind.DISK_WATCHER, "mine-too", NoSettings, self._watcher)]

    @hookimpl
    def lakelog_segment_deleting(self, path: Path, start_offset: int) -> None:
        assert path.exists()
        self.deleting.append(start_offset)
        if start_offset == self.veto:
            raise RuntimeError("not archived yet")

    @hookimpl
    def lakelog_segment_deleted(self, path: Path, start_offset: int) -> None:
        assert not path.exists()
        self.deleted.append(start_offset)

    @hookimpl
    def lakelog_disk_pressure(self, path: Path, state: DiskState) -> None:
        self.pressure.append(state)

    def _cleaner(self, settings: NoSettings, context: Context) -> Any:
        return self.cleaner

    def _watcher(self, settings: NoSettings, context: Context) -> FixedWatcher:
        return self.watcher

    def open(self, path: Path, **more: Any) -> Store:
        """Open a store with this cleaner; no watcher unless given, and no periodic rounds."""
        maintenance = {"first_round_ms": NEVER_MS, **more.pop("maintenance", {})}
        given = {
            "plugins": [self],
            "clock": self.clock,
            "cleaner": "mine",
            "maintenance": maintenance,
            **more,
        }
        return open_small(path, **given)

    @contextmanager
    def filled(self, path: Path, count: int = 160, **more: Any) -> Iterator[Store]:
        """Open a store by :meth:`open`, and put some messages."""
        with self.open(path, **more) as store:
            fill(store, count)
            yield store


def fill(store: Store, count: int) -> list[PutResult]:
    """Put some messages of 400 bytes, and wait until they are dispatched."""
    results = _fill(store, count)
    assert store.wait_dispatched()
    return results
