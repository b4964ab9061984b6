"""Store extensions: methods that a plugin adds to open stores, such as finding by queue and key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from lakelog_interfaces.strategies.behind import Dispatcher

if TYPE_CHECKING:
    from lakelog_interfaces.files import FileSystem


@attrs.frozen(kw_only=True)
class DispatchedLog:
    """The log of an open store and its dispatchers, for a store extension.

    :ivar path: the store directory
    :ivar files: all access to files goes through it
    :ivar settings: the settings in force, a ``lakelog.settings.effective.Settings``
    :ivar read_only: whether no file may be changed
    :ivar reader: a ``LogReader``
    :ivar dispatchers: by name, in their order
    :ivar dispatching: the ``DispatchRunner`` of a process with the services; ``None`` elsewhere,
        where the extension brings the dispatchers up to date with the log
    """

    path: Path
    files: FileSystem
    settings: Any
    read_only: bool
    reader: Any
    dispatchers: Mapping[str, Dispatcher]
    dispatching: Any | None = None


class Extended(Protocol):
    """The resources of a store extension, built for one role of a store."""

    @property
    def waits(self) -> Any:
        """The ``DispatchWait`` of the store: how far the dispatchers are, and waiting for them."""

    def close(self) -> None:
        """Release the resources; called before the log is closed."""


class StoreExtension(Protocol):
    """Adds methods to open stores; a process uses at most one."""

    @property
    def store_class(self) -> type[Any]:
        """The class of open stores, a subclass of ``LogStore``.

        Its methods find the result of :meth:`extend` in ``self._current.now().extension``.
        """

    def extend(self, log: DispatchedLog) -> Extended:
        """Build the resources for ``log``: at open, after a fork, and when the role changes.

        Called for every open store, so it should defer slow work to the first use.
        """
