"""Opens many stores with the same settings: plugins are collected and settings resolved once."""

from __future__ import annotations

from pathlib import Path

import attrs

from lakelog.files import FileSystem
from lakelog.interfaces import Kind
from lakelog.opening import Opening
from lakelog.registry import Registry
from lakelog.settings.effective import Settings
from lakelog.settings.resolver import resolve
from lakelog.store import Store
from lakelog.testing.crash.filesystem import HastyFileSystem
from lakelog.testing.crash.plan import CrashPlan

_NOWHERE = Path("/nonexistent")


@attrs.frozen
class Opener:
    """Opens stores as a plan says."""

    registry: Registry
    settings: Settings
    real: FileSystem = attrs.field(factory=HastyFileSystem)

    @classmethod
    def of(cls, plan: CrashPlan) -> Opener:
        """Collect plugins and settings; raises what :func:`lakelog.open` would."""
        registry = Registry.load(plan.plugins, {})
        sections = registry.sections()
        settings = resolve(
            _NOWHERE,
            sections=sections,
            arguments=plan.arguments(list(sections)),
            source=None,
            broker_conf=None,
            environ={},
            cwd=_NOWHERE,
            tolerate_missing=False,
        )
        registry.factory(Kind.WRITER, plan.writer)
        registry.factory(Kind.FLUSH_STRATEGY, plan.flush)
        return cls(registry, settings)

    @property
    def has_key_index(self) -> bool:
        """Whether keys are indexed."""
        return "hash-index" in self.registry.sections()

    def open(self, path: Path, files: FileSystem | None = None) -> Store:
        """Open the store in ``path`` as its owner."""
        return Opening(path, self.settings, self.registry, files or self.real).for_owner()
