"""All services of one store: starts, watches and stops them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from lakelog.settings.model import ServeSettings
from lakelog_daemon.backoff import Backoff
from lakelog_daemon.service import Calling, Service
from lakelog_daemon.specs import Spec

_REAP_SECONDS: Final = 2.0
"""How long a killed process may take to end, in seconds; one blocked by a disk takes longer."""


class LoopClock(Calling, Protocol):
    """The loop's methods that a supervisor uses."""

    def run(self, is_done: Callable[[], bool], timeout_seconds: float | None = None) -> bool:
        """Process events until ``is_done``; ``False`` on timeout."""


class Supervisor:
    """The services; all methods are called from the loop's thread."""

    def __init__(
        self, specs: Iterable[Spec], store: Path, settings: ServeSettings, loop: LoopClock
    ) -> None:
        self._loop = loop
        self.services = tuple(
            Service(spec, store, settings, loop, Backoff(settings)) for spec in specs
        )

    def start(self) -> None:
        """Start all."""
        for each in self.services:
            each.start()

    def look(self) -> None:
        """Kill services that hang."""
        for each in self.services:
            each.look()

    def stop(self, timeout_seconds: float, is_hurried: Callable[[], bool]) -> bool:
        """Ask all to stop, and wait; returns whether none had to be killed.

        :param is_hurried: returns whether to stop waiting
        """
        for each in self.services:
            each.stop()
        self._loop.run(lambda: self.is_over or is_hurried(), timeout_seconds)
        late = [each for each in self.services if not each.is_over]
        for each in late:
            each.kill()
        self._loop.run(lambda: self.is_over, _REAP_SECONDS)
        return not late

    @property
    def is_over(self) -> bool:
        """Whether all have stopped permanently."""
        return all(each.is_over for each in self.services)

    def rows(self) -> list[Mapping[str, Any]]:
        """The rows of the services in the status file."""
        return [each.row() for each in self.services]
