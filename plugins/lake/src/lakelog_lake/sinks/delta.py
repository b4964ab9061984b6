"""A Delta table, by deltalake: no JVM.

The position is in the table's transaction identifiers, which are part of each commit and which no
clean-up of the log takes away. An identifier has a name and a whole number::

    lakelog/STORE          end of what has landed, in bytes of the log
    lakelog/STORE/MEMBER   start, commit, offset, size, crc: as landing.position has them

and as a whole in ``userMetadata`` of the commit, for people and for the queue offsets. A commit
names identifiers of its own, so that the table refuses one that was prepared beside another.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs

from lakelog.pins import Fingerprint
from lakelog_lake.errors import Conflict, TableMismatch
from lakelog_lake.sinks.base import Head
from lakelog_lake.sinks.checks import Kinds, check_partition, check_topic, missing
from lakelog_lake.sinks.folders import FolderTable
from lakelog_lake.tables.fields import Layout
from lakelog_lake.tables.file_facts import BOUNDED, FileFacts
from lakelog_lake.tables.partitions import as_text
from lakelog_lake.tables.position import Position, from_text, key, to_text
from lakelog_lake.tables.sync import sync

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MEMBERS: Final = ("start", "commit", "offset", "size", "crc")
_TOPIC: Final = "lakelog.topic"
"""Of the table's configuration: the topic whose table it is."""


@attrs.frozen
class DeltaSink(FolderTable):
    """A Delta table."""

    kind: ClassVar[str] = "Delta"

    @property
    def layout(self) -> Layout:
        """Without the columns of partitions: they stand in the log of the table."""
        import pyarrow as pa

        shape = self.shape
        stored = [each for each in shape.stored() if each.name not in shape.partition]
        return Layout(pa.schema(stored), shape.partition)

    def prepare(self) -> None:
        """Make the table, or add to it the columns that it lacks."""
        from deltalake import DeltaTable

        shape = self.shape
        topic = {} if shape.topic is None else {_TOPIC: shape.topic}
        bounded = ",".join(name for name in BOUNDED if name not in shape.partition)
        DeltaTable.create(
            str(self.path),
            shape.stored(),
            mode="ignore",
            partition_by=list(shape.partition),
            configuration={
                "delta.enableExpiredLogCleanup": "true",
                "delta.dataSkippingStatsColumns": bounded,  # or a filter on others finds nothing
                **topic,
            },
            raise_if_key_not_exists=False,
        )
        self.folder.mkdir(exist_ok=True)
        table = DeltaTable(str(self.path))
        self._add_columns(table)
        check_partition(self.name, table.metadata().partition_columns, shape.partition)
        check_topic(self.name, self.marked(), shape.topic)
        self._sync(DeltaTable(str(self.path)).version())
        sync(self.path)
        sync(self.path.parent)

    def _add_columns(self, table: DeltaTable) -> None:
        from deltalake import Schema

        wanted = Schema.from_arrow(self.shape.stored())
        lacks = missing(self.name, _kinds(table.schema()), _kinds(wanted))
        if lacks:
            table.alter.add_columns([each for each in wanted.fields if each.name in lacks])

    def marked(self) -> str | None:
        """The topic that the table says it is for; ``None`` also where there is no table."""
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(self.path)):
            return None
        return DeltaTable(str(self.path)).metadata().configuration.get(_TOPIC)

    @property
    def _log(self) -> Path:
        return self.path / "_delta_log"

    def head(self, store: str) -> Head:
        """Read the log of the table."""
        from deltalake import DeltaTable

        table = DeltaTable(str(self.path))
        return Head(_position(table, store), table)

    def commit(
        self, head: Head, store: str, files: Sequence[FileFacts], position: Position
    ) -> None:
        """One commit on the very handle that the position was read by."""
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, CommitProperties

        table: DeltaTable = head.version
        next_version = table.version() + 1
        now_ms = time.time_ns() // 1_000_000
        actions = [
            AddAction(
                path=self.within(each.path),
                size=each.size_bytes,
                partition_values={name: as_text(name, it) for name, it in each.partition.items()},
                modification_time=now_ms,
                data_change=True,
                stats=_statistics(each, self.shape.partition),
            )
            for each in files
        ]
        try:
            table.create_write_transaction(
                list(actions),
                "append",
                table.schema(),
                partition_by=list(self.shape.partition),
                commit_properties=CommitProperties(
                    custom_metadata={"userMetadata": f"{key(store)}={to_text(position)}"},
                    max_commit_retries=0,
                    app_transactions=_transactions(store, position, now_ms),
                ),
            )
        except CommitFailedError as error:
            raise Conflict(f"{self.name} was changed by somebody else: {error}") from error
        self._sync(next_version)

    def _sync(self, version: int) -> None:
        """Make a version durable; a clean-up of the log may have been faster."""
        with suppress(FileNotFoundError):
            sync(self._log / f"{version:020d}.json")
        sync(self._log)


def _kinds(schema: Schema) -> Kinds:
    types = {each.name: str(each.type) for each in schema.fields}
    return Kinds(types, frozenset(each.name for each in schema.fields if not each.nullable))


def _transactions(store: str, position: Position, now_ms: int) -> list[Any]:
    from deltalake.transaction import Transaction

    last = position.last
    values = {"": position.end, "/start": position.start, "/commit": position.commit}
    if last is not None:
        values |= {"/offset": last.offset, "/size": last.size, "/crc": last.crc}
    return [Transaction(_app(store) + part, value, now_ms) for part, value in values.items()]


def _app(store: str) -> str:
    return f"lakelog/{store}"


def _position(table: DeltaTable, store: str) -> Position | None:
    app = _app(store)
    end = table.transaction_version(app)
    if end is None:
        return None
    start, commit, *last = (table.transaction_version(f"{app}/{each}") for each in _MEMBERS)
    if start is None or commit is None:
        raise TableMismatch(
            f"the transaction identifiers of {app} in {table.table_uri} are not all there"
        )
    mark = None if None in last else Fingerprint(*(int(each or 0) for each in last))
    return Position(start, end, mark, _queues(table, store, commit), commit)


def _queues(table: DeltaTable, store: str, commit: int) -> Any:
    """The queue offsets, from the newest commits; none where a clean-up took them away."""
    prefix = f"{key(store)}="
    for each in table.history(_LOOK_BACK):
        text = str(each.get("userMetadata") or "")
        if text.startswith(prefix):
            found = from_text(text.removeprefix(prefix))
            return found.next_offsets if found.commit == commit else {}
    return {}


_LOOK_BACK: Final = 50


def _statistics(facts: FileFacts, partition: Sequence[str]) -> str:
    """Counts and bounds as Delta writes them: JSON, times with milliseconds, rounded outwards."""
    names = [name for name in facts.lower if name not in partition]
    return json.dumps(
        {
            "numRecords": facts.rows,
            "minValues": {name: _bound(name, facts.lower[name], 0) for name in names},
            "maxValues": {name: _bound(name, facts.upper[name], 999) for name in names},
            "nullCount": {name: facts.null_counts[name] for name in names},
        }
    )


def _bound(name: str, value: int | str, up_us: int) -> int | str:
    if not name.endswith("_timestamp"):
        return value
    try:
        at = _EPOCH + timedelta(milliseconds=(int(value) + up_us) // 1000)
    except OverflowError:
        at = (
            datetime.max.replace(tzinfo=UTC) if int(value) > 0 else datetime.min.replace(tzinfo=UTC)
        )
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
