"""A replica: a store whose log is a copy of a master's, received in place of puts.

Its receiver appends only whole, checked records, so that the log always ends at a record, and
readers, queues and index work as in any store. Bytes count as durable once they are synced here and
the receiver vouches that the master cannot lose them. The checkpoint stores their end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.files.filesystem import FileSystem
from lakelog.files.pages.shared_page import LAST_TIMESTAMP
from lakelog.files.state.replica import read_replica, write_replica
from lakelog.log.log_files import VouchedEnd
from lakelog_format.pieces import Blank, Damage
from lakelog_interfaces.checkpoint import StoreCheckpoint
from lakelog_interfaces.errors import SettingsError, StoreReadOnly
from lakelog_interfaces.strategies import Receiver, ReplicaLog

if TYPE_CHECKING:
    from lakelog.store.owner import OwnedStore
    from lakelog_format.codec.record_batch import RecordBatch

FILLED_BY_MASTER: Final = "the store is a replica, which only its master fills"


def is_replica(
    files: FileSystem, path: Path, replicator: object, *, wanted: bool | None, recovers: bool
) -> bool:
    """Whether to open the store as a replica; checks that settings and files agree.

    :param wanted: whether the caller requires a replica; ``None`` if the settings decide
    :param recovers: whether the store is opened for its recovery only

    Raises :class:`~lakelog.errors.SettingsError` and :class:`~lakelog.errors.StoreReadOnly`.
    """
    state, is_receiver = read_replica(files, path), isinstance(replicator, Receiver)
    if recovers:
        return state is not None
    if is_receiver and wanted is False:
        raise SettingsError(
            "this replicator fills a replica; open the store with mode='replica'", key="replicator"
        )
    if is_receiver:
        return True
    if state is not None:
        raise StoreReadOnly(
            f"it is a replica of {state.source}, and only that appends to it; open it with "
            "mode='read', or continue it with `lakelog replicate`; `lakelog promote` makes it a "
            "store of its own",
            path=path,
        )
    if wanted:
        raise SettingsError(
            "mode='replica' needs a replicator that receives, such as 'rocketmq-ha' with "
            "role = 'slave'; it is in lakelog-replication",
            key="replicator",
        )
    return False


def end_cut(files: FileSystem, path: Path) -> None:
    """Remove the noted cut: log, queues and index are cut; called before the first append."""
    state = read_replica(files, path)
    if state is not None and state.cut is not None:
        write_replica(files, path, attrs.evolve(state, cut=None))


def replica_log(owned: OwnedStore) -> ReplicaLog:
    """The log of an open replica, for its receiver."""

    def store(end: int) -> None:
        owned.checkpoint.advance(StoreCheckpoint(confirm_offset=end))

    def records(start: int, end: int) -> Iterator[RecordBatch]:
        for piece in owned.reader.pieces(start, end, verify=False):
            if not isinstance(piece, Blank | Damage):
                yield piece

    return ReplicaLog(
        log=owned.log,
        last_record=owned.last_record,
        last_timestamp_ms=owned.positions.words[LAST_TIMESTAMP],
        view=owned.segments.view,
        records=records,
        append=owned.log.receive,
        sync=owned.log.sync_received,
        vouch=lambda end, timestamp_ms: owned.log.vouch(VouchedEnd(end, timestamp_ms, store)),
        fail=owned.health.fail,
    )
