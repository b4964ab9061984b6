"""The configuration of a simulation, and the stores that are opened by it.

A plan names the strategies, and their guarantees. An opener loads its plugins once, and opens many
stores with the same settings and without syncs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
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

SEGMENT_BYTES: Final = 8192
STEP_BYTES: Final = 4096
_PROMISES: Final = MappingProxyType(
    {"inline": True, "group-commit": True, "none": False, "timed": False}
)
WRITERS: Final = ("file", "mmap", "staged", "direct")
FLUSHES: Final = ("none", "timed", "inline", "group-commit")
_WITHOUT_WAITING: Final = ("none", "inline")
_ON_DISKS: Final = ("direct",)
_SMALL: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "consume-queue": {"file_entries": 32},
        "hash-index": {"slots": 8, "entries": 24},
        "timed": {"flush_interval_ms": 2, "flush_least_pages": 1},
        "staged": {"commit_interval_ms": 2, "commit_least_pages": 1, "pool_size": 16},
        "direct": {"buffer_bytes": 4096, "buffers": 4, "commit_interval_ms": 2},
    }
)


@attrs.frozen(kw_only=True)
class CrashPlan:
    """A store to crash.

    :ivar writer: the writer, by name
    :ivar flush: the flush strategy, by name
    :ivar plugins: plugins that offer them; ``None`` uses the installed ones
    :ivar settings: further settings and sections, as for :func:`lakelog.open`
    :ivar put_is_durable: whether a message with ``PUT_OK`` survives a power cut; otherwise only
        bytes before ``flushed`` do. ``None`` uses the guarantee of lakelog's strategies, and
        ``True`` for others
    :ivar body_bytes: if given, all messages have this size, one queue and no key, so that leftovers
        after the end of the log fit behind new records
    :ivar key_bytes: if given, all messages have one key of this length, which tears then hit often
    :ivar deletions: whether topics are removed occasionally
    :ivar cleaning: whether the cleaner runs occasionally; settings must name one that plugins offer
    :ivar failing_sync: whether one file sync of each run fails with ``EIO``; the store must then
        refuse everything, since dirty pages may never reach the disk, whatever later syncs report
    :ivar interleave: whether in most runs other threads put, and roll the log, during its commits
        and syncs; without it, runs of ``none`` and ``inline`` are determined by the seed
    :ivar in_memory: whether stores may be on tmpfs, which is faster; the writer ``direct`` refuses
        it
    :ivar steps: number of actions per run
    :ivar points_per_run: number of crash points tried per run, beside its clean closes; 0: only
        these
    :ivar images_per_second_crash: one of this many images is recovered, used, and crashed again
    """

    writer: str = "file"
    flush: str = "inline"
    plugins: Sequence[object] | None = None
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    put_is_durable: bool | None = None
    body_bytes: int | None = None
    key_bytes: int | None = None
    deletions: bool = True
    cleaning: bool = False
    failing_sync: bool = False
    interleave: bool = True
    in_memory: bool = attrs.field()
    steps: int = 16
    points_per_run: int = 30
    images_per_second_crash: int = 24

    @in_memory.default
    def _in_memory(self) -> bool:
        return self.writer not in _ON_DISKS

    @property
    def promises(self) -> bool:
        """Whether ``PUT_OK`` guarantees durability."""
        if self.put_is_durable is not None:
            return self.put_is_durable
        return _PROMISES.get(self.flush, True)

    @property
    def has_threads(self) -> bool:
        """Whether several threads put, for flush strategies that serve several threads."""
        return self.flush not in _WITHOUT_WAITING

    def expression(self) -> str:
        """The expression that recreates the plan without plugins: all non-default fields."""
        plain = CrashPlan(writer=self.writer)
        fields = [each.name for each in attrs.fields(CrashPlan) if each.name != "plugins"]
        given = [
            f"{name}={getattr(self, name)!r}"
            for name in fields
            if name in ("writer", "flush") or getattr(self, name) != getattr(plain, name)
        ]
        return f"CrashPlan({', '.join(given)})"

    def arguments(self, sections: Sequence[str]) -> dict[str, Any]:
        """Settings for :func:`lakelog.open`, with small sizes.

        :param sections: the known sections
        """
        small = {name: value for name, value in _SMALL.items() if name in sections}
        return {
            **small,
            "segment_size_bytes": SEGMENT_BYTES,
            "preallocate": False,
            "allocation_step_bytes": STEP_BYTES,
            "record_crc": True,  # without it, a record torn outside of its body can pass as whole
            "writer": self.writer,
            "flush": self.flush,
            "on_late": "return",
            **self.settings,
        }


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
        return _UnsyncedFile(path, super().open(path, write=write, create=create))

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
