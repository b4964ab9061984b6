"""Tells plugins of lifecycle events, each by itself.

An observer that raises is logged under its plugin's name, and neither stops the others nor the
store. Two events ask: ``store_opening``, where an exception forbids the opening, and
``segment_deleting``, where it keeps the segment. Plugins are asked in pluggy's order: the last one
registered first, ``tryfirst`` before that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from lakelog.errors import PluginError
from lakelog.interfaces import DiskState
from lakelog.registry.plugged import Plugged
from lakelog.registry.sources import Source, error_in


@attrs.frozen
class Veto:
    """A plugin's refusal to let a segment go.

    :ivar plugin: whose it is
    :ivar cause: what it raised
    """

    plugin: str
    cause: Exception

    def __str__(self) -> str:
        """Put the refusal in words."""
        return f"plugin {self.plugin!r} keeps it: {type(self.cause).__name__}: {self.cause}"


@attrs.frozen
class Events:
    """One method per lifecycle event; see :class:`lakelog.hookspecs.Hooks`."""

    _plugged: Plugged

    def store_opening(self, path: Path, read_only: bool) -> None:
        """Ask whether the store may be opened.

        Raises :class:`~lakelog.errors.PluginError`, with its cause, where a plugin forbids it.
        """
        refusal = self._ask("lakelog_store_opening", path=path, read_only=read_only)
        if refusal:
            raise _forbidden(path, *refusal) from refusal[1]

    def store_recovered(self, path: Path, report: object) -> None:
        """Tell that recovery is done."""
        self._tell("lakelog_store_recovered", path=path, report=report)

    def segment_rolled(self, path: Path, start_offset: int) -> None:
        """Tell that the log goes on in the segment ``path``."""
        self._tell("lakelog_segment_rolled", path=path, start_offset=start_offset)

    def segment_deleting(self, path: Path, start_offset: int) -> Veto | None:
        """Ask whether a segment may be deleted; the first refusal, if any.

        A plugin that raises for any reason keeps the segment: deletion cannot be undone.
        """
        refusal = self._ask("lakelog_segment_deleting", path=path, start_offset=start_offset)
        return Veto(refusal[0].name, refusal[1]) if refusal else None

    def segment_deleted(self, path: Path, start_offset: int) -> None:
        """Tell that a segment was deleted."""
        self._tell("lakelog_segment_deleted", path=path, start_offset=start_offset)

    def disk_pressure(self, path: Path, state: DiskState) -> None:
        """Tell that the state of the disks changed."""
        self._tell("lakelog_disk_pressure", path=path, state=state)

    def store_failed(self, path: Path, cause: BaseException) -> None:
        """Tell that a write or sync failed."""
        self._tell("lakelog_store_failed", path=path, cause=cause)

    def store_closed(self, path: Path) -> None:
        """Tell that a store was closed."""
        self._tell("lakelog_store_closed", path=path)

    def cli_commands(self, app: Any) -> None:
        """Let plugins add commands to ``app``, a Typer application."""
        self._tell("lakelog_cli_commands", app=app)

    def _ask(self, hook: str, **arguments: object) -> tuple[Source, Exception] | None:
        for source, caller in self._plugged.callers(hook):
            try:
                caller(**arguments)
            except Exception as error:  # noqa: BLE001  # whatever is raised is a veto
                return source, error
        return None

    def _tell(self, hook: str, **arguments: object) -> None:
        for source, caller in self._plugged.callers(hook):
            try:
                caller(**arguments)
            except Exception as error:  # noqa: BLE001  # observers are isolated
                _log(source, hook, error)


def _forbidden(path: Path, source: Source, error: Exception) -> PluginError:
    what = f"it forbids to open {path}: {type(error).__name__}: {error}"
    return error_in(source, what)


def _log(source: Source, hook: str, error: Exception) -> None:
    import logging

    logging.getLogger("lakelog").error(
        "plugin %r failed in %s; the store goes on: %s", source.name, hook, error, exc_info=error
    )
