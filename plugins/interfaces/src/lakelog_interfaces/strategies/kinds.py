"""The kinds of strategies, and what every factory offers and is handed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, unique
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from lakelog_interfaces.checkpoint import CheckpointKeeper

if TYPE_CHECKING:
    from lakelog_interfaces.accelerate import Accelerator
    from lakelog_interfaces.files import FileSystem
    from lakelog_interfaces.settings import StoreSettings


Infer: TypeAlias = Callable[[Path], Iterable[tuple[str, Any, Path]]]
"""Keys and values that the files of a store show, each with the file that determines it."""


@unique
class Kind(Enum):
    """The kinds of strategies; the value is the hook that offers them.

    :cvar SEGMENT_SOURCE: serves segments that are no longer in the log
    :cvar ACCELERATOR: compiled code for work done for every message
    :cvar SETTINGS_FORMAT: reads settings files in formats other than TOML
    :cvar STORE_EXTENSION: methods of open stores to find messages by queue, time and key
    """

    APPEND_CALLBACK = "lakelog_append_callbacks"
    WRITER = "lakelog_writers"
    FLUSH_STRATEGY = "lakelog_flush_strategies"
    REPLICATOR = "lakelog_replicators"
    DISPATCHER = "lakelog_dispatchers"
    FOLLOWER = "lakelog_followers"
    CLEANER = "lakelog_cleaners"
    DISK_WATCHER = "lakelog_disk_watchers"
    SEGMENT_SOURCE = "lakelog_segment_sources"
    ACCELERATOR = "lakelog_accelerators"
    SETTINGS_FORMAT = "lakelog_settings_formats"
    STORE_EXTENSION = "lakelog_store_extensions"
    STORE_MAINTENANCE = "lakelog_store_maintenance"
    STORE_SHARING = "lakelog_store_sharing"


@attrs.frozen
class Context:
    """What every factory's ``make`` is handed beside its settings.

    :ivar path: the store directory
    :ivar core: the store's own settings; for a settings format, which is asked before there are
        any, their defaults
    :ivar files: the one seam to the operating system's files
    :ivar checkpoint: the file that says up to when things are durable
    :ivar read_only: the store is open for reading: whatever is built stays in memory, and no file
        may be changed or made
    :ivar owner_follows: open for reading beside a living owner that had brought its queues up to
        its log by then, and dispatches in the order of the log
    :ivar accelerator: compiled code to use, if there is any
    """

    path: Path
    core: StoreSettings
    files: FileSystem
    checkpoint: CheckpointKeeper = attrs.field(
        default=attrs.Factory(lambda self: CheckpointKeeper(self.files, self.path), takes_self=True)
    )
    read_only: bool = False
    owner_follows: bool = False
    accelerator: Accelerator | None = None


@attrs.frozen
class Factory:
    """Offers one strategy.

    :ivar kind: what it is
    :ivar name: how settings choose it, and the name of its own section of settings
    :ivar settings: the attrs class of that section
    :ivar make: builds the strategy from its settings and a :class:`Context`
    :ivar summary: one line for ``lakelog plugins``
    :ivar infer: returns keys of its section with the values that the files of a store show, each
        with the file; used for keys that no source sets. It skips files that cannot be read
    """

    kind: Kind
    name: str
    settings: type[Any]
    make: Callable[[Any, Context], object]
    summary: str = ""
    infer: Infer | None = None


@attrs.frozen
class NoSettings:
    """The section of a strategy that has nothing to set."""
