"""The sharing of a store: several processes have it open for writing, and one has its services.

All processes append to the log by themselves; the core has the locks and the shared page. The
sharing joins a process to the others, and moves the services among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Requests(Protocol):
    """Serves the requests of other processes in the one with the services."""

    def turn(self) -> None:
        """Serve pending requests, in another thread; called twice a second."""

    def close(self) -> None:
        """Begin no further request, and wait for the one in progress."""


class SharedLog(Protocol):
    """The log of a store that other processes may have open, and the state of its services.

    :ivar log: the ``OpenLog`` of this process
    :ivar store: the ``RoleState`` of the open store, whose parts change with the services
    """

    log: Any
    store: Any

    def close(self) -> None:
        """Leave the store; the last process closes it as its owner does."""


class StoreSharing(Protocol):
    """Lets several processes have one store open for writing; a process uses at most one.

    ``request`` is an ``OpenRequest``.
    """

    def write(self, request: Any) -> Any:
        """Join the processes that have the store open, or take it over if there are none.

        Returns the ``RoleParts``. Raises :class:`~lakelog.errors.SettingsError`,
        :class:`~lakelog.errors.PluginError` and :class:`~lakelog.errors.StoreLocked` if it cannot
        join them.
        """

    def serve(self, request: Any) -> Any:
        """As :meth:`write`; this process takes the services and keeps them.

        Also raises :class:`~lakelog.errors.StoreLocked` if another process keeps the services.
        """

    def settings(self, request: Any) -> Mapping[str, Any]:
        """The settings that joining processes must use, as JSON values for the shared page."""

    def answering(self, request: Any, manager: Any) -> Requests:
        """Build the server of requests; ``manager``, a ``Managing``, executes them."""
