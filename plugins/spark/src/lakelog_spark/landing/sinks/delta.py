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
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog_spark.columns import NAMES
from lakelog_spark.landing.errors import Conflict, TableMismatch
from lakelog_spark.landing.facts import FileFacts, day_text
from lakelog_spark.landing.position import Fingerprint, Position, from_text, key, to_text
from lakelog_spark.landing.sinks.base import Head
from lakelog_spark.landing.tablefields import DAY, Layout, file_schema

if TYPE_CHECKING:
    from deltalake import DeltaTable

PARTITIONS: Final = ("topic", DAY)
DATA: Final = "data"
_LAYOUT: Final = Layout(tuple(name for name in NAMES if name not in PARTITIONS))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MEMBERS: Final = ("start", "commit", "offset", "size", "crc")


@attrs.frozen
class DeltaSink:
    """:ivar path: the table's folder."""

    path: Path
    layout: Layout = _LAYOUT

    @property
    def name(self) -> str:
        """The folder."""
        return f"the Delta table {self.path}"

    @property
    def folder(self) -> Path:
        """Of the data files."""
        return self.path / DATA

    def prepare(self) -> None:
        """Make the table, partitioned by topic and day."""
        from deltalake import DeltaTable

        wanted = file_schema(Layout((*NAMES, DAY)))
        DeltaTable.create(
            str(self.path),
            wanted,
            mode="ignore",
            partition_by=list(PARTITIONS),
            configuration={"delta.enableExpiredLogCleanup": "true"},
        )
        self.folder.mkdir(exist_ok=True)
        table = DeltaTable(str(self.path))
        missing = set(wanted.names) - {field.name for field in table.schema().fields}
        if missing or tuple(table.metadata().partition_columns) != PARTITIONS:
            raise TableMismatch(
                f"{self.name} has other columns or partitions than lakelog's ({missing or 'none'} "
                f"are missing; partitions must be {', '.join(PARTITIONS)}): land in a new table"
            )

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
        now_ms = time.time_ns() // 1_000_000
        actions = [
            AddAction(
                path=str(Path(each.path).relative_to(self.path)),
                size=each.size_bytes,
                partition_values={"topic": each.topic, DAY: day_text(each.day)},
                modification_time=now_ms,
                data_change=True,
                stats=_statistics(each),
            )
            for each in files
        ]
        try:
            table.create_write_transaction(
                list(actions),
                "append",
                table.schema(),
                partition_by=list(PARTITIONS),
                commit_properties=CommitProperties(
                    custom_metadata={"userMetadata": f"{key(store)}={to_text(position)}"},
                    max_commit_retries=0,
                    app_transactions=_transactions(store, position, now_ms),
                ),
            )
        except CommitFailedError as error:
            raise Conflict(f"{self.name} was changed by somebody else: {error}") from error


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


def _statistics(facts: FileFacts) -> str:
    """Counts and bounds as Delta writes them: JSON, times with milliseconds, rounded outwards."""
    names = [name for name in facts.lower if name not in PARTITIONS]
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
