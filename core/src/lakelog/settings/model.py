"""The store's own settings; every plugin has its own class for its section."""

from __future__ import annotations

from typing import Any, Literal

import attrs
from attrs import field, validators

from lakelog_interfaces.settings import StoreSettings as StoreSettings


@attrs.frozen(kw_only=True)
class AttachSettings:
    """The section ``attach``: several processes that append to one store.

    :ivar listen: whether other processes may write beside this one; ``false`` is mode ``exclusive``
    :ivar take_over: whether this process takes over the services if no process runs them
    :ivar reconnect_timeout_ms: how long another process may take to open or close the store
    :ivar on_fork: effect of a fork on an open store in the child: ``refuse`` makes it unusable,
        ``attach`` reopens it at its next use
    """

    listen: bool = True
    take_over: bool = True
    reconnect_timeout_ms: int = field(default=30_000, validator=validators.ge(0))
    on_fork: Literal["refuse", "attach"] = "refuse"


@attrs.frozen(kw_only=True)
class ServeSettings:
    """The section ``serve``: what ``lakelog serve`` runs beside the store, and how it stops.

    :ivar services: programs to run beside the store, each ``NAME=COMMAND``; the command is split
        like a shell command, without a shell
    :ivar stop_timeout_ms: longest duration of an orderly stop; services still running shortly
        before its end are killed
    :ivar hang_timeout_ms: a service hangs, and is killed, if a signal stops it for this long, or if
        it sends nothing for this long after ``WATCHDOG=1``; 0 is never
    :ivar restart_first_ms: first delay before a service that ended is restarted; doubled after each
        further end, with random variation
    :ivar restart_longest_ms: longest delay before a restart
    :ivar restart_settled_ms: a service that ran for this long restarts with ``restart_first_ms``
        again
    :ivar status_interval_ms: interval at which the status file is written
    """

    services: tuple[str, ...] = ()
    stop_timeout_ms: int = field(default=30_000, validator=validators.ge(1_000))
    hang_timeout_ms: int = field(default=30_000, validator=validators.ge(0))
    restart_first_ms: int = field(default=500, validator=validators.ge(1))
    restart_longest_ms: int = field(default=60_000, validator=validators.ge(1))
    restart_settled_ms: int = field(default=60_000, validator=validators.ge(1))
    status_interval_ms: int = field(default=1_000, validator=validators.ge(100))


def __getattr__(name: str) -> Any:
    """Return ``MaintenanceSettings``, which was moved, with a ``DeprecationWarning``."""
    if name != "MaintenanceSettings":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import warnings
    from importlib import import_module

    what = f"{__name__}.{name} is lakelog_retention.settings.{name} now"
    warnings.warn(what, DeprecationWarning, stacklevel=2)
    return import_module("lakelog_retention.settings").MaintenanceSettings
