"""Opens many stores with the same settings and without syncs; loads plugins once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from lakelog import Store
from lakelog.errors import NotAStore
from lakelog.files.filesystem import File, FileSystem, RealFile, RealFileSystem
from lakelog.hooks import Kind
from lakelog.registry import Registry
from lakelog.settings.effective import Settings
from lakelog.settings.resolver import resolve
from lakelog.store.open import Opening
from lakelog.store.owner import OwnedStore
from lakelog_doctor.recover import recover
from lakelog_doctor.repair import repair
from lakelog_testing.crash.plan import CrashPlan

_NOWHERE: Final = Path("/nonexistent")
_ACCELERATOR: Final = "LAKELOG_ACCELERATOR"
"""The only environment variable that is passed on: it changes no file and no result."""
Tool: TypeAlias = "Callable[..., object]"
TOOLS: Final[tuple[Tool, ...]] = (recover, repair)
"""Tools that an operator may run on a store before a program opens it."""


def owned_by(store: Store) -> OwnedStore:
    """The log of a store that this process owns."""
    owned = store._owned
    assert owned is not None, "only owners are crashed"
    return owned


class _UnsyncedFile(RealFile):
    def sync(self) -> None:
        pass


class UnsyncedFileSystem(RealFileSystem):
    """Real files without syncs, for images that are checked once."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        """See :class:`~lakelog.files.filesystem.FileSystem`."""
        return _UnsyncedFile(path, super().open(path, write=write, create=create).fileno())

    def sync_dir(self, path: Path) -> None:
        """Only check that the directory exists."""
        os.stat(path)


@attrs.frozen
class Opener:
    """Opens stores according to a plan.

    :ivar registry: the plugins of the plan, or all that are installed
    :ivar settings: resolved from the plan alone, without files, and without other variables of the
        environment than the accelerator's
    :ivar arguments: the same as arguments, for tools, which resolve settings themselves
    :ivar real: the file system of stores that are checked, but not crashed again
    """

    registry: Registry
    settings: Settings
    arguments: Mapping[str, Any]
    real: UnsyncedFileSystem = attrs.field(factory=UnsyncedFileSystem)

    @classmethod
    def of(cls, plan: CrashPlan) -> Opener:
        """Load plugins and resolve settings; raises like :func:`lakelog.open`."""
        registry = Registry.load(plan.plugins, {})
        sections = registry.sections()
        arguments = plan.arguments(list(sections))
        settings = resolve(
            _NOWHERE,
            installed=registry.installed(_NOWHERE),
            arguments=arguments,
            source=None,
            broker_conf=None,
            environ={name: value for name, value in os.environ.items() if name == _ACCELERATOR},
            cwd=_NOWHERE,
            tolerate_missing=False,
        )
        registry.factory(Kind.WRITER, plan.writer)
        registry.factory(Kind.FLUSH_STRATEGY, plan.flush)
        return cls(registry, settings, arguments)

    @property
    def has_key_index(self) -> bool:
        """Whether keys are indexed."""
        return "hash-index" in self.registry.sections()

    def open(self, path: Path, files: FileSystem | None = None) -> Store:
        """Open the store in ``path`` as its owner."""
        return Opening(path, self.settings, self.registry, files or self.real).for_owner()

    def mend(self, path: Path, tool: Tool, files: FileSystem | None = None) -> bool:
        """Run ``tool`` on the store in ``path``; returns whether there was a store."""
        with suppress(NotAStore):
            tool(path, plugins=self.registry, files=files or self.real, **self.arguments)
            return True
        return False
