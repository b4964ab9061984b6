"""The hooks of lakelog: by them plugins offer strategies and receive lifecycle events.

A plugin is a module or object whose functions carry :data:`hookimpl`. Hooks are called at open, per
segment or per lifecycle event; none is called per message.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pluggy

if TYPE_CHECKING:
    from lakelog.hooks import DiskState, Factory

PROJECT: Final = "lakelog"
"""The name of the pluggy project, and of the entry point group."""

hookspec: Final = pluggy.HookspecMarker(PROJECT)
hookimpl: Final = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's implementation of a hook."""


class Hooks:
    """All hooks; an implementation may omit arguments, but not rename them."""

    # --- strategies: each hook returns the factories of one kind ---

    @hookspec
    def lakelog_append_callbacks(self) -> Sequence[Factory]:
        """Offer append callbacks."""

    @hookspec
    def lakelog_writers(self) -> Sequence[Factory]:
        """Offer writers."""

    @hookspec
    def lakelog_flush_strategies(self) -> Sequence[Factory]:
        """Offer flush strategies."""

    @hookspec
    def lakelog_replicators(self) -> Sequence[Factory]:
        """Offer replicators."""

    @hookspec
    def lakelog_dispatchers(self) -> Sequence[Factory]:
        """Offer dispatchers."""

    @hookspec
    def lakelog_followers(self) -> Sequence[Factory]:
        """Offer followers."""

    @hookspec
    def lakelog_cleaners(self) -> Sequence[Factory]:
        """Offer cleaners."""

    @hookspec
    def lakelog_disk_watchers(self) -> Sequence[Factory]:
        """Offer disk-space watchers."""

    @hookspec
    def lakelog_segment_sources(self) -> Sequence[Factory]:
        """Offer sources of segments that are no longer in the log."""

    @hookspec
    def lakelog_accelerators(self) -> Sequence[Factory]:
        """Offer accelerators: compiled code for work done for every message."""

    @hookspec
    def lakelog_settings_formats(self) -> Sequence[Factory]:
        """Offer readers of settings files in formats other than TOML."""

    @hookspec
    def lakelog_store_extensions(self) -> Sequence[Factory]:
        """Offer an extension of open stores: methods to find messages by queue, time and key."""

    # --- lifecycle: each hook is notified of an event ---

    @hookspec
    def lakelog_store_opening(self, path: Path, read_only: bool) -> None:
        """A store is about to be opened; raise to forbid it. No file was touched yet."""

    @hookspec
    def lakelog_store_recovered(self, path: Path, report: object) -> None:
        """Recovery is complete; ``report`` describes its findings and actions."""

    @hookspec
    def lakelog_segment_rolled(self, path: Path, start_offset: int) -> None:
        """The log continues in a new segment, ``path``, which starts at ``start_offset``."""

    @hookspec
    def lakelog_segment_deleting(self, path: Path, start_offset: int) -> None:
        """A segment is about to be deleted; raise to keep it, and all later ones, for now.

        The file is whole and durable. Called in the store's maintenance thread, or in the thread
        that requested the deletion. The deletion waits until the hook returns.
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
