"""The sharing of a store: several processes have it open for writing, and one has its services.

All processes append to the log by themselves; the core has the locks and the shared page. The
sharing joins a process to them, and moves the services among them.
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

    :ivar prepared: the ``OpenRequest``, with the settings shared by all processes of the store
    :ivar log: the ``OpenLog`` of this process
    :ivar store: the ``RoleState`` of the open store, whose parts change with the services
    """

    prepared: Any
    log: Any
    store: Any

    def parts(self) -> Any:
        """Build the ``RoleParts`` of a process without the services."""

    def serve(self) -> Any:
        """Take the services and keep them; return the ``RoleParts``.

        Raises :class:`~lakelog.errors.StoreLocked` if another process keeps them.
        """

    def close(self) -> None:
        """Leave the store; the last process closes it as its owner does."""


class StoreSharing(Protocol):
    """Lets several processes have one store open for writing; a process uses at most one.

    ``request`` is an ``OpenRequest``.
    """

    def settings(self, request: Any) -> Mapping[str, Any]:
        """The settings that joining processes must use, as JSON values for the shared page."""

    def admit(self, request: Any, parts: Any) -> None:
        """Set ``parts.joined`` of the first process: it may hand its services over later."""

    def answering(self, request: Any, manager: Any) -> Requests:
        """Build the server of requests; a ``Managing`` executes them."""

    def join(self, request: Any) -> SharedLog | None:
        """Join the processes that have the store open; ``None`` if there are none.

        Raises :class:`~lakelog.errors.SettingsError`, :class:`~lakelog.errors.PluginError` and
        :class:`~lakelog.errors.StoreLocked` if it cannot join them.
        """
