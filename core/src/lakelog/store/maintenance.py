"""The maintenance of a store if no plugin offers one: it never deletes anything."""

from __future__ import annotations

import attrs

from lakelog.registry import Registry
from lakelog.settings.model import StoreSettings
from lakelog.store.strategies import require_maintenance
from lakelog_interfaces.strategies import MaintainedLog, ServedLog


@attrs.frozen
class NoMaintenance:
    """Both a ``StoreMaintenance`` and the ``Maintenance`` that it returns.

    Its methods raise :class:`~lakelog.errors.MissingPlugin` for work that needs a plugin. A reader
    may have a cleaner and a watcher in its settings; opening for writing raises for them before.
    """

    registry: Registry
    core: StoreSettings

    def maintain(self, log: MaintainedLog, served: ServedLog) -> NoMaintenance:
        """Return this object."""
        del log, served
        return self

    def view(self, log: MaintainedLog) -> NoMaintenance:
        """Return this object."""
        del log
        return self

    def disk(self) -> None:
        """Return ``None``; raise if the settings name a watcher."""
        if self.core.disk_watcher is not None:
            require_maintenance(self.registry)

    def look(self) -> None:
        """Return ``None``; raise if the settings name a cleaner."""
        if self.core.cleaner is not None:
            require_maintenance(self.registry)

    delete_expired = look

    def delete_unused_topics(self) -> list[str]:
        """Raise the error that names the missing package."""
        require_maintenance(self.registry)
        return []

    def close(self) -> None:
        """Do nothing."""
