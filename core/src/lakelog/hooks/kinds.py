"""The kinds of strategies, their factories with the context of a call, and the core's settings.

Settings formats, which read the settings files of other systems, are here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, unique
from mmap import PAGESIZE
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import attrs
from attrs import field, validators

from lakelog.files.checkpoint import CheckpointKeeper
from lakelog.format.layout import COMMITLOG_DIR, DEFAULT_SEGMENT_SIZE_BYTES

if TYPE_CHECKING:
    from lakelog.accelerate import Accelerator
    from lakelog.files.filesystem import FileSystem
    from lakelog.hooks.housekeeping import Clock

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


@attrs.frozen(eq=False)
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
    :ivar clock: replaces the system's clock, for tests
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
    clock: Clock | None = None


class Factory(NamedTuple):
    """Offers one strategy.

    :ivar kind: the kind of the strategy
    :ivar name: the strategy's name in the settings, and the name of its section
    :ivar settings: the attrs class of that section; or its place, ``"module:Class"``, which is
        imported if the section is set or the strategy used
    :ivar make: builds the strategy from its settings and a :class:`Context`
    :ivar summary: one line for ``lakelog plugins``
    :ivar infer: infers values of the section from the files of a store directory, for keys that no
        source sets. It must skip files that cannot be read
    """

    kind: Kind
    name: str
    settings: type[Any] | str
    make: Callable[[Any, Context], object]
    summary: str = ""
    infer: Infer | None = None


@attrs.frozen
class NoSettings:
    """The section of a strategy without settings."""


def _pages(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value % PAGESIZE:
        raise ValueError(f"{attribute.name} must be a multiple of {PAGESIZE}, not {value}")


def _named(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not value:
        raise ValueError(
            f"{attribute.name} is empty; give a name that `lakelog plugins` lists, or leave it out"
        )


@attrs.frozen(kw_only=True)
class StoreSettings:
    """The settings of the core; sizes in bytes, durations in milliseconds.

    :ivar group: name of the group that may read and write new files, and attach; without it, new
        files get the permissions of ``lock``, and those of a new store are its user's alone
    :ivar commitlog_path: directory of the segments, if not ``commitlog/``; a relative path is
        relative to the store directory
    :ivar segment_size_bytes: length of every segment file (RocketMQ's ``mappedFileSizeCommitLog``)
    :ivar append: the append callback, by name
    :ivar writer: the writer, by name
    :ivar flush: the flush strategy, by name; ``auto`` is the best that is installed
    :ivar on_late: what a put does whose message is in the log, but not durable or copied in time:
        ``raise`` raises :class:`~lakelog.NotDurable`, ``return`` returns the result, whose
        ``status`` alone shows it
    :ivar replicator: the replicator, by name, if any
    :ivar dispatchers: the dispatchers, in the order in which they receive each batch; ``auto`` is
        the consume queues, then the key index if one is installed; empty makes a bare log
    :ivar followers: the followers, by name
    :ivar cleaner: the cleaner, by name, if any
    :ivar disk_watcher: the disk-space watcher, by name, if any
    :ivar archive: the segment source, by name, that serves segments deleted from the log, if any
    :ivar accelerator: compiled code for work done for every message, by name; ``auto`` is the
        installed one, ``none`` is plain Python; files, results and errors are the same
    :ivar max_message_size_bytes: largest body; a record may be 64 KiB larger
    :ivar store_host: ``address:port`` in records and message ids
    :ivar queues_per_topic: number of queues among which a put without a queue id is distributed
    :ivar record_crc: whether records are written with the checksum property ``__CRC32#``
    :ivar require_record_crc: whether recovery treats a record without ``__CRC32#`` as damaged, for
        logs whose records all have one (RocketMQ's ``forceVerifyPropCRC``)
    :ivar light_queues: whether ``INNER_MULTI_DISPATCH`` feeds light queues
    :ivar max_light_queues: largest number of light queues
    :ivar os_page_cache_busy_timeout_ms: puts are refused while one append takes longer than this
    :ivar preallocate: whether the next segment and its blocks are allocated ahead of need
    :ivar allocation_step_bytes: disk blocks allocated at a time as the log grows, at first; later
        up to 16 times as many; the size of a segment allocates it all at once
    :ivar on_damage: how recovery treats whole records after damaged ones: ``skip`` keeps them and
        marks the damage, ``refuse`` does not open the store, ``truncate`` cuts the log at the
        damage, as RocketMQ does. ``cut-end`` is ``skip`` that also sets aside an unreadable end of
        the log that was durable, which is refused otherwise
    """

    group: str | None = None
    commitlog_path: Path | None = None
    segment_size_bytes: int = field(
        default=DEFAULT_SEGMENT_SIZE_BYTES, validator=[validators.ge(4096), validators.le(1 << 40)]
    )
    append: str = field(default="rocketmq", validator=_named)
    writer: str = field(default="file", validator=_named)
    flush: str = field(default="auto", validator=_named)
    on_late: Literal["raise", "return"] = "raise"
    replicator: str | None = None
    dispatchers: tuple[str, ...] = ("auto",)
    followers: tuple[str, ...] = ()
    cleaner: str | None = None
    disk_watcher: str | None = None
    archive: str | None = None
    accelerator: str = field(default="auto", validator=_named)
    max_message_size_bytes: int = field(
        default=4 << 20, validator=[validators.ge(1), validators.le(1 << 30)]
    )
    store_host: str = "127.0.0.1:10911"
    queues_per_topic: int = field(default=4, validator=validators.ge(1))
    record_crc: bool = False
    require_record_crc: bool = False
    light_queues: bool = False
    max_light_queues: int = field(default=20_000, validator=validators.ge(0))
    os_page_cache_busy_timeout_ms: int = field(default=1_000, validator=validators.ge(0))
    preallocate: bool = True
    allocation_step_bytes: int = field(default=1 << 20, validator=[validators.ge(4096), _pages])
    on_damage: Literal["skip", "refuse", "truncate", "cut-end"] = "skip"

    def commitlog(self, path: Path) -> Path:
        """The directory of the segments of the store in ``path``."""
        return path / (self.commitlog_path or COMMITLOG_DIR)


class TranslatedValue(NamedTuple):
    """One lakelog setting, translated from a file of another system.

    :ivar target: lakelog's dotted key
    :ivar value: its value, not yet validated
    :ivar keys: the keys of the file from which it was translated
    """

    target: str
    value: object
    keys: tuple[str, ...]


class Translation(NamedTuple):
    """The translation of a file of another system.

    :ivar values: the settings in it; a key that no installed plugin has is reported
    :ivar unused: its keys that set nothing, with the reason
    """

    values: tuple[TranslatedValue, ...] = ()
    unused: Mapping[str, str] = MappingProxyType({})


class SettingsFormat(Protocol):
    """Reads settings files of another system, for one store."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of such files: lower case, with the dot, and never ``.toml``."""

    def read(self, data: bytes, origin: str) -> Translation:
        """Translate a file.

        :param data: the whole file
        :param origin: its name, for errors

        Raises :class:`~lakelog.errors.SettingsError` for invalid content, with ``origin`` as its
        source, and the key in the file. A key without a counterpart is not an error.
        """

    def translate_key(self, key: str) -> str | None:
        """Lakelog's dotted key for a key of the other system, if any; used only for errors."""
