"""Delivers lifecycle events to each plugin separately.

If an observer raises, the error is logged with its plugin's name; the other observers and the store
continue. Two events can be refused: an exception in ``store_opening`` forbids the opening, and one
in ``segment_deleting`` keeps the segment. Plugins are called in pluggy's order: the last registered
first, preceded by those with ``tryfirst``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from lakelog.registry.discovery import PluginSource
from lakelog.registry.loading import Plugged
from lakelog_interfaces.strategies import DiskState

_LOG: Final = logging.getLogger("lakelog")


@attrs.frozen
class Events:
    """One method per lifecycle event; see :class:`lakelog.hookspecs.Hooks`."""

    _plugged: Plugged

    def store_opening(self, path: Path, read_only: bool) -> None:
        """Announce the opening, which a plugin may forbid.

        Raises :class:`~lakelog.errors.PluginError`, with its cause, if a plugin forbids it.
        """
        refusal = self._ask("lakelog_store_opening", path=path, read_only=read_only)
        if refusal:
            source, error = refusal
            what = f"it refuses to open {path}: {type(error).__name__}: {error}"
            raise source.error(what) from error

    def store_recovered(self, path: Path, report: object) -> None:
        """Announce the end of recovery."""
        self._notify("lakelog_store_recovered", path=path, report=report)

    def segment_rolled(self, path: Path, start_offset: int) -> None:
        """Announce that the log continues in the segment ``path``."""
        self._notify("lakelog_segment_rolled", path=path, start_offset=start_offset)

    def segment_deleting(self, path: Path, start_offset: int) -> str | None:
        """Announce the deletion of a segment; return the refusing plugin and its reason, if any.

        Any exception of a plugin keeps the segment: deletion cannot be undone.
        """
        refusal = self._ask("lakelog_segment_deleting", path=path, start_offset=start_offset)
        if refusal is None:
            return None
        source, error = refusal
        return f"plugin {source.name!r} vetoed it: {type(error).__name__}: {error}"

    def segment_deleted(self, path: Path, start_offset: int) -> None:
        """Announce that a segment was deleted."""
        self._notify("lakelog_segment_deleted", path=path, start_offset=start_offset)

    def disk_pressure(self, path: Path, state: DiskState) -> None:
        """Announce a new state of the disks."""
        self._notify("lakelog_disk_pressure", path=path, state=state)

    def store_failed(self, path: Path, cause: BaseException) -> None:
        """Announce a failed write or sync."""
        self._notify("lakelog_store_failed", path=path, cause=cause)

    def store_closed(self, path: Path) -> None:
        """Announce that a store was closed."""
        self._notify("lakelog_store_closed", path=path)

    def cli_commands(self, app: Any, of: str | None = None) -> None:
        """Let plugins, or the one called ``of``, add commands to ``app``, a Typer application."""
        self._notify("lakelog_cli_commands", of, app=app)

    def _ask(self, hook: str, **arguments: object) -> tuple[PluginSource, Exception] | None:
        """The first refusal; the plugins behind it are not called."""
        return next(self._failures(hook, arguments), None)

    def _notify(self, hook: str, of: str | None = None, **arguments: object) -> None:
        for source, error in self._failures(hook, arguments, of):
            what = f"plugin {source.name!r} failed in {hook}; the store goes on: {error}"
            _LOG.error("%s", what, exc_info=error)

    def _failures(
        self, hook: str, arguments: Mapping[str, object], of: str | None = None
    ) -> Iterator[tuple[PluginSource, Exception]]:
        for source, caller in self._plugged.callers(hook):
            try:
                if of in {None, source.name}:
                    caller(**arguments)
            except Exception as error:  # noqa: BLE001  # any exception is a veto; observers are isolated
                yield source, error
