"""The hooks of lakelog: strategies are offered, and lifecycle events heard of, by these names.

A plugin is a module or object whose functions carry :data:`hookimpl`. Hooks are called at open,
per segment or per lifecycle event; none is called per message.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pluggy

if TYPE_CHECKING:
    from lakelog.interfaces import DiskState, Factory

PROJECT: Final = "lakelog"
"""The name of the plugin project, and of the entry point group."""

hookspec: Final = pluggy.HookspecMarker(PROJECT)
hookimpl: Final = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's implementation of a hook."""


class Hooks:
    """Every hook; arguments may be left out by an implementation, never renamed."""

    # --- strategies: each returns what it offers of one kind ---

    @hookspec
    def lakelog_append_callbacks(self) -> Sequence[Factory]:
        """Offer append callbacks."""
        raise NotImplementedError

    @hookspec
    def lakelog_writers(self) -> Sequence[Factory]:
        """Offer writers."""
        raise NotImplementedError

    @hookspec
    def lakelog_flush_strategies(self) -> Sequence[Factory]:
        """Offer flush strategies."""
        raise NotImplementedError

    @hookspec
    def lakelog_replicators(self) -> Sequence[Factory]:
        """Offer replicators."""
        raise NotImplementedError

    @hookspec
    def lakelog_dispatchers(self) -> Sequence[Factory]:
        """Offer dispatchers."""
        raise NotImplementedError

    @hookspec
    def lakelog_followers(self) -> Sequence[Factory]:
        """Offer followers."""
        raise NotImplementedError

    @hookspec
    def lakelog_cleaners(self) -> Sequence[Factory]:
        """Offer cleaners."""
        raise NotImplementedError

    @hookspec
    def lakelog_disk_watchers(self) -> Sequence[Factory]:
        """Offer disk-space watchers."""
        raise NotImplementedError

    @hookspec
    def lakelog_segment_sources(self) -> Sequence[Factory]:
        """Offer sources of segments that are not in the log any more."""
        raise NotImplementedError

    @hookspec
    def lakelog_accelerators(self) -> Sequence[Factory]:
        """Offer compiled code for what is done for every message."""
        raise NotImplementedError

    @hookspec
    def lakelog_settings_formats(self) -> Sequence[Factory]:
        """Offer readers of settings files in other formats than TOML."""
        raise NotImplementedError

    # --- lifecycle: each hears of an event ---

    @hookspec
    def lakelog_store_opening(self, path: Path, read_only: bool) -> None:
        """A store is about to be opened; raise to forbid it. No file of a store was touched yet."""

    @hookspec
    def lakelog_store_recovered(self, path: Path, report: object) -> None:
        """Recovery is done; ``report`` tells what it found and did."""

    @hookspec
    def lakelog_segment_rolled(self, path: Path, start_offset: int) -> None:
        """The log goes on in a new segment, ``path``, which starts at ``start_offset``."""

    @hookspec
    def lakelog_segment_deleting(self, path: Path, start_offset: int) -> None:
        """A segment is about to be deleted; raise to keep it, and all behind it, for now.

        The file is whole and durable. Called in the store's maintenance thread, or in that of
        who asked; the deletion waits for it, however long it takes.
        """

    @hookspec
    def lakelog_segment_deleted(self, path: Path, start_offset: int) -> None:
        """A segment was deleted, durably."""

    @hookspec
    def lakelog_disk_pressure(self, path: Path, state: DiskState) -> None:
        """The state of a store's disks changed; in ``STOP_WRITING`` puts are refused."""

    @hookspec
    def lakelog_store_failed(self, path: Path, cause: BaseException) -> None:
        """A write or sync failed; the store takes no more puts."""

    @hookspec
    def lakelog_store_closed(self, path: Path) -> None:
        """A store was closed."""

    @hookspec
    def lakelog_cli_commands(self, app: Any) -> None:
        """Add commands to ``app``, the command line's Typer application."""
