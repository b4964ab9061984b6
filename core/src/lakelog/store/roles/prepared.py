"""The input to every way of opening a store: settings, plugins, and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from lakelog.dispatch.run import NamedDispatcher
from lakelog.dispatch.runner import DispatchRunner
from lakelog.files.filesystem import FileSystem
from lakelog.files.shared.ownership import is_followed
from lakelog.log.reading.log_reader import LogReader
from lakelog.registry import Registry
from lakelog.registry.missing import kind_text
from lakelog.settings.effective import Settings
from lakelog.store.maintenance import NoMaintenance
from lakelog.store.strategies import with_accelerator
from lakelog_format.cached import cached_property
from lakelog_interfaces.errors import PluginError
from lakelog_interfaces.strategies import (
    Clock,
    Context,
    DispatchedLog,
    Extended,
    Kind,
    StoreExtension,
    StoreMaintenance,
    StoreSharing,
)


@attrs.frozen(slots=False)
class OpenRequest:
    """A store about to be opened; none of its files is changed yet.

    :ivar path: the store directory
    :ivar settings: the settings in force
    :ivar registry: the strategies on offer
    :ivar files: all access to files goes through it
    :ivar clock: replaces the clock of maintenance, for tests
    """

    path: Path
    settings: Settings
    registry: Registry
    files: FileSystem
    clock: Clock | None = None

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
        made: StoreExtension | None = self._single(Kind.STORE_EXTENSION)
        return made

    @cached_property
    def maintenance(self) -> StoreMaintenance:
        """The maintenance of open stores."""
        made: StoreMaintenance | None = self._single(Kind.STORE_MAINTENANCE)
        return NoMaintenance(self.registry, self.settings.core) if made is None else made

    @cached_property
    def sharing(self) -> StoreSharing | None:
        """The sharing of stores among processes, if one is installed."""
        made: StoreSharing | None = self._single(Kind.STORE_SHARING)
        return made

    def _single(self, kind: Kind) -> Any:
        """Build the only strategy of a kind; ``None`` without a plugin.

        Raises :class:`~lakelog.errors.PluginError` if several are installed.
        """
        names = self.registry.names(kind)
        if len(names) > 1:
            raise PluginError(
                f"of the kind {kind_text(kind)!r}, {', '.join(names)} are installed, and a process "
                "uses one: switch the other plugins off"
            )
        if not names:
            return None
        factory = self.registry.factory(kind, *names)
        section = self.settings.sections.get(factory.name) or factory.settings()
        plain = Context(self.path, self.settings.core, self.files, read_only=True)
        return self.registry.make(kind, factory.name, section, plain)

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
