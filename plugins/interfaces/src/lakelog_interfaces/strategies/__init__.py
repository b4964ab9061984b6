"""The Protocols of strategies, one per kind, and the types of their arguments and results.

A strategy receives its collaborators as arguments, and never the whole store. It returns decisions;
one place in the store acts on them. Objects are checked against their Protocol once, at open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakelog_interfaces.accelerate import Accelerator as Accelerator
from lakelog_interfaces.strategies.appending import (
    AppendCallback as AppendCallback,
    BodyDecoder as BodyDecoder,
)
from lakelog_interfaces.strategies.behind import (
    Dispatcher as Dispatcher,
    Follower as Follower,
    FollowerProgram as FollowerProgram,
    FrontRemover as FrontRemover,
    HashChains as HashChains,
    HashFile as HashFile,
    HashFiles as HashFiles,
    KeyIndex as KeyIndex,
    QueueReader as QueueReader,
    TopicRemover as TopicRemover,
    WatchedFollower as WatchedFollower,
)
from lakelog_interfaces.strategies.extending import (
    DispatchedLog as DispatchedLog,
    Extended as Extended,
    StoreExtension as StoreExtension,
)
from lakelog_interfaces.strategies.flushing import (
    AppendedPut as AppendedPut,
    Flushable as Flushable,
    FlushStrategy as FlushStrategy,
    Outcome as Outcome,
    Pending as Pending,
    Settle as Settle,
    Wakeable as Wakeable,
)
from lakelog_interfaces.strategies.housekeeping import (
    Cleaner as Cleaner,
    CleaningContext as CleaningContext,
    Deletion as Deletion,
    DeletionRate as DeletionRate,
    DiskReport as DiskReport,
    DiskState as DiskState,
    DiskUsage as DiskUsage,
    DiskWatcher as DiskWatcher,
    SegmentInfo as SegmentInfo,
    SegmentSource as SegmentSource,
)
from lakelog_interfaces.strategies.kinds import (
    Context as Context,
    Factory as Factory,
    Kind as Kind,
    NoSettings as NoSettings,
)
from lakelog_interfaces.strategies.maintaining import (
    CleaningReport as CleaningReport,
    Clock as Clock,
    Deleted as Deleted,
    KeptSegment as KeptSegment,
    MaintainedLog as MaintainedLog,
    Maintenance as Maintenance,
    ServedLog as ServedLog,
    StoreMaintenance as StoreMaintenance,
)
from lakelog_interfaces.strategies.replicating import (
    CopyProgress as CopyProgress,
    LeadingReplicator as LeadingReplicator,
    Receiver as Receiver,
    ReplicaLog as ReplicaLog,
    ReplicatedLog as ReplicatedLog,
    Replicator as Replicator,
)
from lakelog_interfaces.strategies.sharing import (
    Requests as Requests,
    SharedLog as SharedLog,
    StoreSharing as StoreSharing,
)
from lakelog_interfaces.strategies.writing import (
    CommitRules as CommitRules,
    Extendable as Extendable,
    InMemory as InMemory,
    Mapped as Mapped,
    Sealable as Sealable,
    SegmentWriter as SegmentWriter,
    Writer as Writer,
    WriterTraits as WriterTraits,
)
from lakelog_interfaces.strategies.translating import (
    SettingsFormat as SettingsFormat,
    TranslatedValue as TranslatedValue,
    Translation as Translation,
)

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
    Kind.STORE_SHARING: StoreSharing,
}
"""The Protocol of each kind."""

_FORMER = {"Pace": DeletionRate, "Situation": CleaningContext}


if not TYPE_CHECKING:  # with it, type checkers would accept any name

    def __getattr__(name: str) -> Any:
        """Return classes by their former names, with a ``DeprecationWarning``."""
        if name not in _FORMER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import warnings

        warnings.warn(f"{name} is {_FORMER[name].__name__} now", DeprecationWarning, stacklevel=2)
        return _FORMER[name]
