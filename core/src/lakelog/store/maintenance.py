"""Stands in for the maintenance of stores where no plugin has it: nothing is ever deleted."""

from __future__ import annotations

import attrs

from lakelog.registry import Registry
from lakelog.settings.model import StoreSettings
from lakelog.store.strategies import require_maintenance
from lakelog_interfaces.strategies import MaintainedLog, ServedLog


@attrs.frozen
class NoMaintenance:
    """A store maintenance and its results, in one.

    Raises :class:`~lakelog.errors.MissingPlugin` for what only a plugin can do. A reader may have
    a cleaner and a watcher in its settings; a store that is open for writing has none.
    """

    registry: Registry
    core: StoreSettings

    def maintain(self, log: MaintainedLog, served: ServedLog) -> NoMaintenance:
        """Do nothing."""
        del log, served
        return self

    def view(self, log: MaintainedLog) -> NoMaintenance:
        """Do nothing."""
        del log
        return self

    def disk(self) -> None:
        """Nothing is known without a watcher."""
        if self.core.disk_watcher is not None:
            require_maintenance(self.registry)

    def look(self) -> None:
        """Nothing would be deleted without a cleaner."""
        if self.core.cleaner is not None:
            require_maintenance(self.registry)

    delete_expired = look

    def delete_unused_topics(self) -> list[str]:
        """Name the package that can."""
        require_maintenance(self.registry)
        return []

    def close(self) -> None:
        """Do nothing."""
