"""The maintenance of a store in a process without its services: a dry run, and requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from lakelog.errors import StoreReadOnly
from lakelog.interfaces import (
    Cleaner,
    CleaningReport,
    Clock,
    Deleted,
    DiskReport,
    DiskWatcher,
    KeptSegment,
    MaintainedLog,
)
from lakelog.runtime.cached import cached_property
from lakelog_retention.maintenance.disks import paths_of
from lakelog_retention.maintenance.planning import ReaderGrace, RetentionHolds, dry_run
from lakelog_retention.maintenance.rounds import situation
from lakelog_retention.maintenance.segment_infos import SegmentInfos
from lakelog_retention.settings import MaintenanceSettings


@attrs.define(slots=False, eq=False)
class RemoteMaintenance:
    """Maintenance by another process: this one only reports the segments it would delete."""

    _log: MaintainedLog
    _settings: MaintenanceSettings
    _clock: Clock

    @cached_property
    def _cleaner(self) -> Cleaner | None:
        return self._log.cleaner()

    @cached_property
    def _watcher(self) -> DiskWatcher | None:
        return self._log.disk_watcher()

    def disk(self) -> DiskReport | None:
        """Measure the disks; ``None`` without a watcher."""
        watcher = self._watcher
        return None if watcher is None else watcher.observe(paths_of(self._log))

    def look(self) -> CleaningReport | None:
        """Report the segments that would be deleted; ``None`` without a cleaner."""
        cleaner = self._cleaner
        return None if cleaner is None else self._look(cleaner)

    def _look(self, cleaner: Cleaner) -> CleaningReport:
        now_ms = self._clock.now_ms()
        infos = SegmentInfos(self._log, _nobody, self._settings.pin_expires_after_ms)
        holds = RetentionHolds(
            lambda: self._log.reader.max_offset,
            self._settings.override_pins,
            ReaderGrace(self._clock, cleaner.pace),
        )
        seen = situation(now_ms, self.disk(), manual=True)
        return dry_run(cleaner, infos.sealed(now_ms), seen, holds, infos.minimum)

    def delete_expired(self) -> CleaningReport | None:
        """Have the process with the services delete."""
        reply = self._ask("delete_expired")
        return None if reply is None else _report_of(reply)

    def delete_unused_topics(self) -> list[str]:
        """Have the process with the services delete."""
        return list(self._ask("delete_unused_topics"))

    def _ask(self, method: str) -> Any:
        if self._log.ask is None:
            raise StoreReadOnly(
                "the store is open for reading; open it with mode='write'",
                path=self._log.directory.path,
            )
        return self._log.ask(method)

    def close(self) -> None:
        """Do nothing: no thread runs."""


def _nobody(_start: int) -> int:
    """Number of views held: always 0, as views in other processes are unknown."""
    return 0


def _report_of(reply: Mapping[str, Any]) -> CleaningReport:
    """A report from its JSON values."""
    kept = reply["kept"]
    deleted = (
        Deleted(**{**each, "pinned_by": tuple(each["pinned_by"])}) for each in reply["deleted"]
    )
    given = {
        "deleted": tuple(deleted),
        "kept": None if kept is None else KeptSegment(**kept),
        "topics": tuple(reply["topics"]),
    }
    return CleaningReport(**{**reply, **given})
