"""Does a custom flush strategy keep its promise? Test it with the crash simulator."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import attrs

import lakelog
from lakelog.hooks import Context, Factory, Flushable, Kind, Outcome
from lakelog.hooks.hookspecs import hookimpl
from lakelog_testing.crash import CrashPlan, simulate

PAUSE_SECONDS = 0.002


@attrs.frozen
class NoSettings:
    """Neither strategy has settings."""


@attrs.define
class Patient:
    """A slow strategy: a put soon after a sync waits until the next sync is due."""

    log: Flushable | None = None
    synced_at: float = 0.0

    def start(self, log: Flushable) -> None:
        """Store the log."""
        self.log = log

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Sync if needed; PUT_OK promises that a message with ``wait`` survives a power cut."""
        early = self.synced_at + PAUSE_SECONDS - time.monotonic()
        if self.log and wait and self.log.flushed < end_offset and self.is_time(early):
            self.log.sync()
            self.synced_at = time.monotonic()
        return lakelog.PutStatus.PUT_OK

    def is_time(self, early_seconds: float) -> bool:
        """Wait until a sync is due; always true."""
        time.sleep(max(early_seconds, 0))
        return True

    def close(self) -> None:
        """Sync the rest."""
        if self.log:
            self.log.sync()


class Hasty(Patient):
    """The same with a bug: a put soon after a sync is acknowledged without a sync."""

    def is_time(self, early_seconds: float) -> bool:
        """Return whether a sync is due, without waiting."""
        return early_seconds <= 0


def make_patient(_settings: NoSettings, _context: Context) -> Patient:
    """Make the correct strategy when a store opens."""
    return Patient()


def make_hasty(_settings: NoSettings, _context: Context) -> Hasty:
    """Make the wrong strategy."""
    return Hasty()


@hookimpl
def lakelog_flush_strategies() -> Sequence[Factory]:
    """Offer both; this module is the plugin."""
    return [
        Factory(Kind.FLUSH_STRATEGY, "patient", NoSettings, make_patient),
        Factory(Kind.FLUSH_STRATEGY, "hasty", NoSettings, make_hasty),
    ]


def main() -> None:
    """Crash both, some hundred times."""
    for name in ("hasty", "patient"):
        plan = CrashPlan(flush=name, plugins=[sys.modules[__name__]])
        outcome = simulate(plan, images=150, seed=1)
        print(f"{name}: {outcome.images} crashes, {len(outcome.violations)} promises broken")
        for broken in outcome.violations:
            print(f"  {broken.what}")


if __name__ == "__main__":
    main()
