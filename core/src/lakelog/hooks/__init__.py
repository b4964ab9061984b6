"""The Protocols of strategies, one per kind, and the types of their arguments and results.

A strategy receives its collaborators as arguments, and never the whole store. It returns decisions;
one place in the store acts on them. Objects are checked against their Protocol once, at open.
"""

from __future__ import annotations

from typing import Any

from lakelog.accelerate import Accelerator as Accelerator
from lakelog.hooks.appending import AppendCallback as AppendCallback
from lakelog.hooks.appending import AppendedPut as AppendedPut
from lakelog.hooks.appending import BodyDecoder as BodyDecoder
from lakelog.hooks.appending import CommitRules as CommitRules
from lakelog.hooks.appending import Extendable as Extendable
from lakelog.hooks.appending import Flushable as Flushable
from lakelog.hooks.appending import FlushStrategy as FlushStrategy
from lakelog.hooks.appending import LeadingReplicator as LeadingReplicator
from lakelog.hooks.appending import Mapped as Mapped
from lakelog.hooks.appending import Outcome as Outcome
from lakelog.hooks.appending import Pending as Pending
from lakelog.hooks.appending import Receiver as Receiver
from lakelog.hooks.appending import ReplicaLog as ReplicaLog
from lakelog.hooks.appending import ReplicatedLog as ReplicatedLog
from lakelog.hooks.appending import Replicator as Replicator
from lakelog.hooks.appending import Sealable as Sealable
from lakelog.hooks.appending import SegmentWriter as SegmentWriter
from lakelog.hooks.appending import Settle as Settle
from lakelog.hooks.appending import Wakeable as Wakeable
from lakelog.hooks.appending import Writer as Writer
from lakelog.hooks.appending import WriterTraits as WriterTraits
from lakelog.hooks.dispatching import DispatchedLog as DispatchedLog
from lakelog.hooks.dispatching import Dispatcher as Dispatcher
from lakelog.hooks.dispatching import Follower as Follower
from lakelog.hooks.dispatching import FollowerProgram as FollowerProgram
from lakelog.hooks.dispatching import FrontRemover as FrontRemover
from lakelog.hooks.dispatching import HashChains as HashChains
from lakelog.hooks.dispatching import HashFile as HashFile
from lakelog.hooks.dispatching import HashFiles as HashFiles
from lakelog.hooks.dispatching import KeyIndex as KeyIndex
from lakelog.hooks.dispatching import QueueReader as QueueReader
from lakelog.hooks.dispatching import StoreExtension as StoreExtension
from lakelog.hooks.dispatching import WatchedFollower as WatchedFollower
from lakelog.hooks.housekeeping import Cleaner as Cleaner
from lakelog.hooks.housekeeping import CleaningContext as CleaningContext
from lakelog.hooks.housekeeping import CleaningReport as CleaningReport
from lakelog.hooks.housekeeping import Clock as Clock
from lakelog.hooks.housekeeping import Deleted as Deleted
from lakelog.hooks.housekeeping import Deletion as Deletion
from lakelog.hooks.housekeeping import DeletionRate as DeletionRate
from lakelog.hooks.housekeeping import DiskReport as DiskReport
from lakelog.hooks.housekeeping import DiskState as DiskState
from lakelog.hooks.housekeeping import DiskUsage as DiskUsage
from lakelog.hooks.housekeeping import DiskWatcher as DiskWatcher
from lakelog.hooks.housekeeping import KeptSegment as KeptSegment
from lakelog.hooks.housekeeping import SegmentInfo as SegmentInfo
from lakelog.hooks.housekeeping import SegmentSource as SegmentSource
from lakelog.hooks.kinds import Context as Context
from lakelog.hooks.kinds import Factory as Factory
from lakelog.hooks.kinds import Kind as Kind
from lakelog.hooks.kinds import NoSettings as NoSettings
from lakelog.hooks.kinds import SettingsFormat as SettingsFormat
from lakelog.hooks.kinds import TranslatedValue as TranslatedValue
from lakelog.hooks.kinds import Translation as Translation
from lakelog.processes.group_sync import CopiedEnd as CopiedEnd

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
"""The Protocol of each kind."""
