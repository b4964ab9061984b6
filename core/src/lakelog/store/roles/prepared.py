"""The input to every way of opening a store: settings, plugins, and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

from lakelog.dispatch.run import NamedDispatcher
from lakelog.dispatch.runner import DispatchRunner
from lakelog.files.filesystem import FileSystem
from lakelog.files.shared.ownership import is_followed
from lakelog.housekeeping.clock import Clock, SystemClock
from lakelog.interfaces import Context, DispatchedLog, Extended, StoreExtension
from lakelog.log.reading.log_reader import LogReader
from lakelog.registry import Registry
from lakelog.runtime.cached import cached_property
from lakelog.settings.effective import Settings
from lakelog.store.strategies import make_extension, with_accelerator


@attrs.frozen(slots=False)
class OpenRequest:
    """A store about to be opened; its files are not touched yet."""

    path: Path
    settings: Settings
    registry: Registry
    files: FileSystem
    clock: Clock = attrs.field(factory=SystemClock)

    def context(self, *, read_only: bool) -> Context:
        """Build the context for making strategies."""
        context = Context(
            self.path,
            self.settings.core,
            self.files,
            read_only=read_only,
            owner_follows=read_only and is_followed(self.files, self.path),
        )
        return with_accelerator(self.registry, self.settings, context)

    @cached_property
    def extension(self) -> StoreExtension | None:
        """The extension of open stores, if one is installed."""
        plain = Context(self.path, self.settings.core, self.files, read_only=True)
        return make_extension(self.registry, self.settings, plain)

    def extended(
        self,
        reader: LogReader,
        dispatchers: Sequence[NamedDispatcher],
        dispatching: DispatchRunner | None = None,
        *,
        read_only: bool = False,
    ) -> Extended | None:
        """Build the resources of the extension for one role; see ``DispatchedLog``."""
        if self.extension is None:
            return None
        return self.extension.extend(
            DispatchedLog(
                path=self.path,
                files=self.files,
                settings=self.settings,
                read_only=read_only,
                reader=reader,
                dispatchers={each.name: each.dispatcher for each in dispatchers},
                dispatching=dispatching,
            )
        )
