"""A Delta table, written with deltalake, without a JVM.

The positions of all stores are in the ``userMetadata`` of each commit, and so belong to the version
that the commit makes. Transaction identifiers are not suitable: a restore of the table does not
restore them, and they expire by the table's settings. One identifier per store marks how far the
store has landed, for a table whose commits were cleaned up::

    lakelog/STORE    end of the landed range, a physical offset in bytes
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.errors import SettingsError
from lakelog_lake.errors import Conflict, DemandsUnmet
from lakelog_lake.sinks import delta_protocol
from lakelog_lake.sinks.base import (
    DELTA_LOG,
    FolderTable,
    Head,
    Kinds,
    check_partition,
    check_place,
    check_topic,
    missing,
)
from lakelog_lake.tables import data_files, remote, settings
from lakelog_lake.tables import position as positions
from lakelog_lake.tables.position import Position
from lakelog_lake.tables.shape import Layout, adds, as_text, demanding, fits

if TYPE_CHECKING:
    from deltalake import DeltaTable, Field, Schema
    from deltalake.transaction import AddAction, RemoveAction

_STEPS: Final = (1, 16, 256, None)
"""Commits to read at once; usually the newest one has all positions."""


def app_of(store: str) -> str:
    """The transaction identifier that marks a store."""
    return f"lakelog/{store}"


@attrs.define
class DeltaHistory:
    """See :class:`~lakelog_lake.tables.position.TableHistory`."""

    _table: DeltaTable
    _oldest: int = -1
    _is_straight: bool = True

    def commits(self) -> Iterator[positions.PositionedVersion]:
        """The commits back to the oldest version that log clean-up has left.

        Behind a RESTORE come the commits that led to the version restored.
        """
        read_count, newest = 0, self._table.version()
        for count in _STEPS:
            found = self._table.history(count)
            for each in found[read_count:]:
                if each["version"] > newest:
                    continue
                self._oldest = each["version"]
                restored = _restored(each)
                if restored is not None:
                    newest = restored
                    self._is_straight = False
                    continue
                texts = _json_of(each.get("userMetadata"))
                yield positions.PositionedVersion.of(texts, replaces=_replaces(each))
            read_count = len(found)
            if count is None or read_count < count:
                return

    def begins(self) -> bool:
        """Whether the log still has version 0."""
        return self._oldest == 0

    def is_straight(self) -> bool:
        """Whether no restore was met."""
        return self._is_straight

    def mark(self, store: str) -> str | None:
        """The transaction identifier of the store, which a restore does not set back."""
        found = self._table.transaction_version(app_of(store))
        return None if found is None else str(found)

    def is_of_parent(self, snapshot: int) -> bool:  # noqa: ARG002  # identifiers have no version
        """False: an identifier does not say with which version it came."""
        return False

    def last_rows(self) -> Iterator[pa.RecordBatch]:
        """The columns :data:`LAST_ROWS` of all rows."""
        yield from delta_protocol.rows(self._table, positions.LAST_ROWS)

    def holds(self, store: str) -> bool:
        """Whether the table has a row of ``store``."""
        batches = delta_protocol.rows(self._table, ["store"])
        return any(pc.any(pc.equal(each.column(0), store)).as_py() for each in batches)


def texts_of(metadata: Any) -> dict[str, str]:
    """The positions in a commit; none in that of another writer."""
    return positions.texts_in(_json_of(metadata))


def _json_of(metadata: Any) -> Mapping[str, Any]:
    try:
        found = json.loads(str(metadata or ""))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _restored(commit: Mapping[str, Any]) -> int | None:
    """The version that a commit restored, if it is known by its number."""
    given = str((commit.get("operationParameters") or {}).get("version"))
    is_restore = str(commit.get("operation", "")).startswith("RESTORE")
    return int(given) if is_restore and given.isdecimal() else None


def _replaces(commit: Mapping[str, Any]) -> bool:
    """Whether a commit may have replaced earlier rows, by its operation.

    A restore to a time does not tell which version that was. ``REPLACE COLUMNS`` changes no row.
    """
    given = commit.get("operationParameters") or {}
    is_whole = given.get("mode") == "Overwrite" and not given.get("predicate")
    names = ("RESTORE", "CLONE", "REPLACE TABLE", "CREATE OR REPLACE", "CONVERT")
    return is_whole or str(commit.get("operation", "")).startswith(names)


_log = logging.getLogger("lakelog_lake")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TOPIC: Final = "lakelog.topic"
"""The key of the table's configuration for its only topic."""
_CLEANED: Final = {"delta.enableExpiredLogCleanup": "true"}
_TRIM_EVERY: Final = 20
_UNMET: Final = "nsupported table features"
"""A part of deltalake's error for a table that it does not write."""
_VERSION: Final = re.compile(r"(\d{20})\.(checkpoint\.parquet$)?")
_ENDPOINTS: Final = ("aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint")


def remote_folder(uri: str, options: Mapping[str, str]) -> remote.Remote:
    """A folder in an object store.

    :param options: storage options of deltalake; missing ones come from the environment
    """
    os.environ.setdefault("RUST_LOG", "error")  # no warnings of missing credentials
    root, known = uri.rstrip("/"), dict(options)
    lower = {name.lower(): it for name, it in (*os.environ.items(), *options.items())}
    endpoints = [lower[name] for name in _ENDPOINTS if name in lower]
    if any(each.startswith("http://") for each in endpoints):
        known.setdefault("allow_http", "true")  # an http URL was given on purpose
    return remote.Remote(root, remote.DeltaFiles(root, remote.pairs(known)))


def opened(path: remote.Folder) -> DeltaTable:
    """Open the newest version; raises deltalake's ``TableNotFoundError``."""
    from deltalake import DeltaTable

    return DeltaTable(str(path), storage_options=options_of(path))


def options_of(path: remote.Folder) -> dict[str, str] | None:
    """Storage options for deltalake."""
    if isinstance(path, remote.Remote) and isinstance(path.files, remote.DeltaFiles):
        return dict(path.files.options)
    return None


def is_there(path: remote.Folder) -> bool:
    """Whether a folder has a Delta table."""
    from deltalake import DeltaTable

    return bool(DeltaTable.is_deltatable(str(path), options_of(path)))


@attrs.frozen
class DeltaSink(FolderTable[remote.Folder]):
    """A sink that is a Delta table."""

    kind: ClassVar[str] = "Delta"
    _known: dict[Any, positions.KnownPositions] = attrs.field(
        factory=dict, init=False, repr=False, eq=False
    )
    _seen: list[tuple[Hashable, pa.Schema]] = attrs.field(
        factory=list, init=False, repr=False, eq=False
    )
    """The form and columns of the table at the last :meth:`prepare`, if any."""

    @property
    def layout(self) -> Layout:
        """The columns without partition columns, whose values are only in the table's log."""
        shape = self.shape
        stored = [each for each in shape.stored() if each.name not in shape.partition]
        form, known = self._seen[-1] if self._seen else (None, ())
        required = demanding(known, [each.name for each in stored])
        columns = pa.schema(stored)
        return Layout(columns, shape.partition, has_folders=True, required=required, form=form)

    def prepare(self) -> None:
        """Create the table, or add missing columns and fields of columns."""
        from deltalake import DeltaTable

        shape = self.shape
        if isinstance(self.path, Path) and not is_there(self.path):
            check_place(self.name, self.path, DELTA_LOG)
        topic = {} if shape.topic is None else {_TOPIC: shape.topic}
        bounded = ",".join(name for name in data_files.BOUNDED if name not in shape.partition)
        DeltaTable.create(
            str(self.path),
            shape.stored(),
            mode="ignore",
            partition_by=list(shape.partition),
            configuration={
                **_CLEANED,
                **(_history(settings.DEFAULT_HISTORY) if isinstance(self.path, Path) else {}),
                "delta.checkpointInterval": str(_TRIM_EVERY),  # a commit reads every later version
                # Filters treat a file without statistics for a column as empty.
                "delta.dataSkippingStatsColumns": bounded,
                **topic,
            },
            raise_if_key_not_exists=False,
            storage_options=options_of(self.path),
        )
        if isinstance(self.folder, Path):
            self.folder.mkdir(exist_ok=True)
        table = opened(self.path)
        delta_protocol.check(self.name, table)
        lacks = self._lacking(table)
        check_partition(self.name, table.metadata().partition_columns, shape.partition)
        check_topic(self.name, table.metadata().configuration.get(_TOPIC), shape.topic)
        if lacks:  # also columns with more fields inside
            table.alter.add_columns(lacks)
        table = opened(self.path)
        self._seen[:] = [(delta_protocol.form(table), pa.schema(table.schema().to_arrow()))]
        self.sync_version(table.version())
        if isinstance(self.path, Path):
            remote.sync(self.path)
            remote.sync(self.path.parent)

    def _lacking(self, table: DeltaTable) -> list[Field]:
        """The columns to add to ``table``; raises ``TableMismatch`` if it cannot take the rows."""
        from deltalake import Schema

        ours = self.shape.stored()
        wanted, known = Schema.from_arrow(ours), pa.schema(table.schema().to_arrow())

        def grows(column: str) -> bool:
            return fits(known.field(column).type, ours.field(column).type, widens=False)

        lacks = missing(self.name, _kinds(table.schema()), _kinds(wanted), grows)
        there = [each for each in ours if each.name not in lacks]
        lacks += [each.name for each in there if adds(known.field(each.name).type, each.type)]
        if lacks and delta_protocol.is_mapped(table):
            raise DemandsUnmet(self.name, [f"its column mapping, as it lacks {', '.join(lacks)}"])
        return [each for each in wanted.fields if each.name in lacks]

    def keep(self, history: str) -> None:
        """Keep versions for a time, or all, by settings that all engines follow.

        See :class:`.base.Trimmed`. Raises :class:`~lakelog.errors.SettingsError` for a number of
        versions in an object store.
        """
        setting, wanted = settings.kept(history), _history(history)
        is_number = setting is not None and not setting.seconds
        if is_number and not isinstance(self.path, Path):
            raise SettingsError(
                f"{history!r} is a number, but in an object store Delta keeps its log by time: "
                "write 12h, or off",
                key="--history",
            )
        table = opened(self.path)
        found = table.metadata().configuration
        if any(found.get(name) != value for name, value in wanted.items()):
            table.alter.set_table_properties(wanted, raise_if_not_exists=False)

    def marked(self) -> str | None:
        """The only topic of the table; ``None`` if it has all topics or does not exist."""
        if not is_there(self.path):
            return None
        return opened(self.path).metadata().configuration.get(_TOPIC)

    def head(self, store: str, resume: settings.Resume | None = None) -> Head:
        """Read the newest version from the table's log."""
        found = self._newest()
        return Head.of(found, store, resume, delta_protocol.form(found.table))

    def texts(self) -> Mapping[str, str]:
        """The texts of the positions of all stores, as far as commits show them."""
        return self._newest().known.texts

    def _newest(self) -> positions.TableVersion:
        table = opened(self.path)
        version = (table.metadata().id, table.version())
        return positions.cached_version(self._known, version, table, DeltaHistory(table), self.name)

    def commit(
        self, head: Head, store: str, files: Sequence[data_files.FileFacts], position: Position
    ) -> None:
        """Commit on the handle from which the position was read."""
        actions = [
            added(
                self.within(each.path),
                each,
                {name: as_text(name, it) for name, it in each.partition.items()},
            )
            for each in files
        ]
        self.change(head, store, actions, position)

    def change(
        self,
        head: Head,
        store: str,
        actions: Sequence[AddAction | RemoveAction],
        position: Position,
    ) -> None:
        """As :meth:`commit`, with removals.

        :param actions: files to add and to remove

        Raises :class:`~lakelog_lake.errors.Conflict`.
        """
        from deltalake.transaction import Transaction

        table: DeltaTable = head.version.table
        now_ms = time.time_ns() // 1_000_000
        known: positions.KnownPositions = head.version.known
        metadata = json.dumps(known.properties(store, position), ensure_ascii=False)
        mark = Transaction(app_of(store), position.end, now_ms)
        version = self.write(
            table, actions, custom_metadata={"userMetadata": metadata}, app_transactions=[mark]
        )
        if not version % _TRIM_EVERY:
            self._trim(table, version)

    def write(
        self, table: DeltaTable, actions: Sequence[AddAction | RemoveAction], **properties: Any
    ) -> int:
        """Commit on ``table`` without retries, durably; return the number of the new version.

        :param properties: see deltalake's ``CommitProperties``

        Raises :class:`~lakelog_lake.errors.Conflict`.
        """
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import CommitProperties, PostCommitHookProperties

        version = table.version() + 1
        # The clean-up lists the whole log: half of the cost of a commit behind 1,500 versions.
        cleans = False if version % _TRIM_EVERY else None
        try:
            table.create_write_transaction(
                list(actions),
                "append",
                table.schema(),
                partition_by=list(self.shape.partition),
                commit_properties=CommitProperties(max_commit_retries=0, **properties),
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=cleans),
            )
        except CommitFailedError as error:
            if _UNMET in str(error):
                raise DemandsUnmet(self.name, [str(error)]) from error
            raise Conflict(f"{self.name} was changed by another writer: {error}") from error
        self.sync_version(version)
        return version

    def _trim(self, table: DeltaTable, version: int) -> None:
        """Remove old versions from a local log, of which each commit lists all files.

        Deltalake removes those that are too old. The commit is already done: an error here is only
        logged, and a later commit tries again.
        """
        try:
            setting = settings.kept(table.metadata().configuration.get(settings.HISTORY))
            if isinstance(self.path, Path) and setting is not None:
                most = settings.MOST_VERSIONS if setting.seconds else setting.versions
                drop_versions(self.path / "_delta_log", version - most)
        except (OSError, SettingsError) as error:
            _log.warning("%s cannot remove old versions: %s", self.name, error)

    def sync_version(self, version: int) -> None:
        """Sync the file of a version; another process may already have removed it."""
        log = self.path / "_delta_log"
        with suppress(FileNotFoundError):
            remote.sync(log / f"{version:020d}.json")
        remote.sync(log)


def _history(history: str) -> dict[str, str]:
    """The configuration for a history; all engines follow that of a time, and ``off``."""
    setting, found = settings.kept(history), {**_CLEANED, settings.HISTORY: history}
    if setting is None:
        return found | dict.fromkeys(_CLEANED, "false")
    if setting.seconds:
        found["delta.logRetentionDuration"] = f"interval {setting.seconds} seconds"
    return found


def drop_versions(log: Path, first: int) -> None:
    """Remove a Delta log's files up to the newest checkpoint at or before version ``first``.

    Oldest first, so that the log never has a gap, and only after the checkpoint is durable.
    """
    found = [each for each in map(_VERSION.match, sorted(os.listdir(log))) if each]
    checkpoints = (int(each[1]) for each in found if each[2])
    oldest = max((version for version in checkpoints if version <= first), default=0)
    old = [each.string for each in found if int(each[1]) < oldest]
    if old:
        remote.sync(log / f"{oldest:020d}.checkpoint.parquet")
        remote.sync(log)
    for name in old:
        (log / name).unlink(missing_ok=True)


def added(
    path: str,
    facts: data_files.FileFacts,
    partition: Mapping[str, str | None],
    *,
    data_change: bool = True,
) -> AddAction:
    """Build the action that adds a file.

    :param partition: its values as the log has them
    :param data_change: whether its rows are new in the table
    """
    from deltalake.transaction import AddAction

    return AddAction(
        path=path,
        size=facts.size_bytes,
        partition_values=partition,
        modification_time=time.time_ns() // 1_000_000,
        data_change=data_change,
        stats=_statistics(facts, partition),
    )


def _kinds(schema: Schema) -> Kinds:
    types = {each.name: str(each.type) for each in schema.fields}
    return Kinds(types, frozenset(each.name for each in schema.fields if not each.nullable))


def _statistics(facts: data_files.FileFacts, partition: Collection[str]) -> str:
    """Counts and bounds in Delta's JSON: times in milliseconds, rounded outwards."""
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
