"""What a strategy must do: one Protocol per kind, and the little that it is handed.

A strategy gets its collaborators as arguments and never the whole store. It returns decisions;
one place in the store acts on them. Objects are checked against their Protocol once, at open.
"""

from __future__ import annotations

from typing import Any

from lakelog.accelerate import Accelerator as Accelerator
from lakelog.interfaces.appending import AppendCallback as AppendCallback
from lakelog.interfaces.appending import BodyDecoder as BodyDecoder
from lakelog.interfaces.behind import Dispatcher as Dispatcher
from lakelog.interfaces.behind import Follower as Follower
from lakelog.interfaces.behind import FollowerProgram as FollowerProgram
from lakelog.interfaces.behind import FrontRemover as FrontRemover
from lakelog.interfaces.behind import HashChains as HashChains
from lakelog.interfaces.behind import HashFile as HashFile
from lakelog.interfaces.behind import HashFiles as HashFiles
from lakelog.interfaces.behind import KeyIndex as KeyIndex
from lakelog.interfaces.behind import QueueReader as QueueReader
from lakelog.interfaces.behind import TopicRemover as TopicRemover
from lakelog.interfaces.behind import WatchedFollower as WatchedFollower
from lakelog.interfaces.extending import DispatchedLog as DispatchedLog
from lakelog.interfaces.extending import Extended as Extended
from lakelog.interfaces.extending import StoreExtension as StoreExtension
from lakelog.interfaces.flushing import Flushable as Flushable
from lakelog.interfaces.flushing import FlushStrategy as FlushStrategy
from lakelog.interfaces.flushing import Outcome as Outcome
from lakelog.interfaces.flushing import Pending as Pending
from lakelog.interfaces.flushing import Replicator as Replicator
from lakelog.interfaces.flushing import Wakeable as Wakeable
from lakelog.interfaces.housekeeping import Cleaner as Cleaner
from lakelog.interfaces.housekeeping import CleaningContext as CleaningContext
from lakelog.interfaces.housekeeping import Deletion as Deletion
from lakelog.interfaces.housekeeping import DeletionRate as DeletionRate
from lakelog.interfaces.housekeeping import DiskReport as DiskReport
from lakelog.interfaces.housekeeping import DiskState as DiskState
from lakelog.interfaces.housekeeping import DiskUsage as DiskUsage
from lakelog.interfaces.housekeeping import DiskWatcher as DiskWatcher
from lakelog.interfaces.housekeeping import SegmentInfo as SegmentInfo
from lakelog.interfaces.kinds import Context as Context
from lakelog.interfaces.kinds import Factory as Factory
from lakelog.interfaces.kinds import Kind as Kind
from lakelog.interfaces.kinds import NoSettings as NoSettings
from lakelog.interfaces.older import SegmentSource as SegmentSource
from lakelog.interfaces.writing import CommitRules as CommitRules
from lakelog.interfaces.writing import Extendable as Extendable
from lakelog.interfaces.writing import InMemory as InMemory
from lakelog.interfaces.writing import Mapped as Mapped
from lakelog.interfaces.writing import Sealable as Sealable
from lakelog.interfaces.writing import SegmentWriter as SegmentWriter
from lakelog.interfaces.writing import Writer as Writer
from lakelog.interfaces.writing import WriterTraits as WriterTraits
from lakelog.settings.formats import SettingsFormat as SettingsFormat
from lakelog.settings.formats import TranslatedValue as TranslatedValue
from lakelog.settings.formats import Translation as Translation

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
