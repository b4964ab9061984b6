"""What a strategy must do: one Protocol per kind, and the little that it is handed.

A strategy gets its collaborators as arguments and never the whole store. It returns decisions;
one place in the store acts on them. Objects are checked against their Protocol once, at open.
"""

from __future__ import annotations

from typing import Any

from lakelog.accelerate import Accelerator
from lakelog.interfaces.appending import (
    AppendCallback,
    BodyDecoder,
)
from lakelog.interfaces.behind import (
    Dispatcher,
    Follower,
    FollowerProgram,
    FrontRemover,
    HashChains,
    HashFile,
    HashFiles,
    KeyIndex,
    QueueReader,
    TopicRemover,
    WatchedFollower,
)
from lakelog.interfaces.extending import DispatchedLog, Extended, StoreExtension
from lakelog.interfaces.flushing import (
    Flushable,
    FlushStrategy,
    Outcome,
    Pending,
    Wakeable,
)
from lakelog.interfaces.housekeeping import (
    Cleaner,
    CleaningContext,
    Deletion,
    DeletionRate,
    DiskReport,
    DiskState,
    DiskUsage,
    DiskWatcher,
    SegmentInfo,
)
from lakelog.interfaces.kinds import (
    Context,
    Factory,
    Kind,
    NoSettings,
)
from lakelog.interfaces.maintaining import (
    CleaningReport,
    Clock,
    Deleted,
    KeptSegment,
    MaintainedLog,
    Maintenance,
    ServedLog,
    StoreMaintenance,
)
from lakelog.interfaces.older import SegmentSource
from lakelog.interfaces.receiving import Receivable, Receiver
from lakelog.interfaces.replicating import (
    CopyProgress,
    LeadingReplicator,
    ReplicatedLog,
    Replicator,
)
from lakelog.interfaces.writing import (
    CommitRules,
    Extendable,
    InMemory,
    Mapped,
    Sealable,
    SegmentWriter,
    Writer,
    WriterTraits,
)
from lakelog.settings.formats import SettingsFormat, TranslatedValue, Translation

__all__ = [
    "PROTOCOLS",
    "Accelerator",
    "AppendCallback",
    "BodyDecoder",
    "Cleaner",
    "CleaningContext",
    "CleaningReport",
    "Clock",
    "CommitRules",
    "Context",
    "CopyProgress",
    "Deleted",
    "Deletion",
    "DeletionRate",
    "DiskReport",
    "DiskState",
    "DiskUsage",
    "DiskWatcher",
    "DispatchedLog",
    "Dispatcher",
    "Extendable",
    "Extended",
    "Factory",
    "FlushStrategy",
    "Flushable",
    "Follower",
    "FollowerProgram",
    "FrontRemover",
    "HashChains",
    "HashFile",
    "HashFiles",
    "InMemory",
    "KeptSegment",
    "KeyIndex",
    "Kind",
    "LeadingReplicator",
    "MaintainedLog",
    "Maintenance",
    "Mapped",
    "NoSettings",
    "Outcome",
    "Pending",
    "QueueReader",
    "Receivable",
    "Receiver",
    "ReplicatedLog",
    "Replicator",
    "Sealable",
    "SegmentInfo",
    "SegmentSource",
    "SegmentWriter",
    "ServedLog",
    "SettingsFormat",
    "StoreExtension",
    "StoreMaintenance",
    "TopicRemover",
    "TranslatedValue",
    "Translation",
    "Wakeable",
    "WatchedFollower",
    "Writer",
    "WriterTraits",
]

PROTOCOLS: dict[Kind, type[Any]] = {
    Kind.APPEND_CALLBACK: AppendCallback,
    Kind.WRITER: Writer,
    Kind.FLUSH_STRATEGY: FlushStrategy,
    Kind.REPLICATOR: Replicator,
    Kind.DISPATCHER: Dispatcher,
    Kind.FOLLOWER: Follower,
    Kind.CLEANER: Cleaner,
    Kind.DISK_WATCHER: DiskWatcher,
    Kind.SEGMENT_SOURCE: SegmentSource,
    Kind.ACCELERATOR: Accelerator,
    Kind.SETTINGS_FORMAT: SettingsFormat,
    Kind.STORE_EXTENSION: StoreExtension,
    Kind.STORE_MAINTENANCE: StoreMaintenance,
}
"""What the object of each kind must do."""

_FORMER = {"Pace": DeletionRate, "Situation": CleaningContext}


def __getattr__(name: str) -> Any:
    """Give classes by their former names, with a warning."""
    if name not in _FORMER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import warnings

    what = f"{__name__}.{name} is {_FORMER[name].__name__} now"
    warnings.warn(what, DeprecationWarning, stacklevel=2)
    return _FORMER[name]
