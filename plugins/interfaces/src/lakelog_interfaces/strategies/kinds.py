"""The kinds of strategies, their factories, and the context in which a factory is called."""

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
"""Returns keys and values inferred from a store directory, each with the file that shows it."""


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
    """The argument of every factory's ``make`` beside the strategy's own settings.

    :ivar path: the store directory
    :ivar core: the store's own settings; their defaults for a settings format, which is called
        before settings are read
    :ivar files: all access to the operating system's files goes through it
    :ivar checkpoint: the file with the store times up to which log, queues and index are durable
    :ivar read_only: whether the store is open for reading: files must not be changed or created,
        and everything that is built stays in memory
    :ivar owner_follows: whether the store is open for reading beside a living owner whose queues
        were up to date with its log at open, and which dispatches in log order
    :ivar accelerator: compiled code to use, if available
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

    :ivar kind: the kind of the strategy
    :ivar name: the strategy's name in the settings, and the name of its section
    :ivar settings: the attrs class of that section
    :ivar make: builds the strategy from its settings and a :class:`Context`
    :ivar summary: one line for ``lakelog plugins``
    :ivar infer: infers values of the section from the files of a store directory, for keys that no
        source sets. It must skip files that cannot be read
    """

    kind: Kind
    name: str
    settings: type[Any]
    make: Callable[[Any, Context], object]
    summary: str = ""
    infer: Infer | None = None


@attrs.frozen
class NoSettings:
    """The section of a strategy without settings."""
