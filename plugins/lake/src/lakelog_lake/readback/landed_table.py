"""The interface of all kinds of tables for maintenance: rows, files, size and position.

The last commits of a table, from the table's own metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import attrs

from lakelog_lake.sinks.delta_history import texts_of
from lakelog_lake.tables.position import Position, from_text, texts_in

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

    from lakelog_lake.sinks.parquet import ParquetSink
    from lakelog_lake.tables.position import Position

KEY: Final = ("store", "topic", "queue_id", "queue_offset", "physical_offset")
"""The columns that identify a row."""
BATCH_ROWS: Final = 16_384

DataFile: TypeAlias = "tuple[str, Mapping[str, Any]]"
"""A path or URI, and the columns that the file itself does not hold."""


@attrs.frozen
class TableSize:
    """The size of a table.

    :ivar rows: number of rows of the newest version, including rows removed by Iceberg delete files
    :ivar files: number of its data files
    :ivar bytes: total size of these files
    :ivar versions: number of kept Iceberg snapshots, Delta versions, or Parquet manifests
    """

    rows: int
    files: int
    bytes: int
    versions: int


class LandedTable(Protocol):
    """One table of any kind; each call reads its newest version."""

    @property
    def name(self) -> str:
        """The table's name in messages."""

    def columns(self) -> Mapping[str, str]:
        """Types by column name, as the kind of table writes them; raises ``NoTable``."""

    def position(self, store: str) -> Position | None:
        """The position of ``store``; ``None`` if it never landed here."""

    def batches(self, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Rows of ``store``, or of all stores, in any order."""

    def data_files(self) -> list[DataFile]:
        """The data files of the newest version.

        Raises :class:`~lakelog_lake.errors.NeedsEngine` if delete files change their rows.
        """

    def size(self) -> TableSize:
        """The size from the table's metadata; no data file is read."""

    def commits(self) -> list[TableCommit]:
        """The last commits, oldest first; empty if not known."""


@attrs.frozen
class WithDeadLetters:
    """A table with its dead letters, which are committed before the rows of the main table.

    :ivar main: the main table; its position is used for both
    """

    main: LandedTable
    dead: LandedTable

    @property
    def name(self) -> str:
        """The name of the main table."""
        return self.main.name

    def columns(self) -> Mapping[str, str]:
        """The columns of the main table."""
        return self.main.columns()

    def position(self, store: str) -> Position | None:
        """The position in the main table."""
        return self.main.position(store)

    def batches(self, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Rows of both; dead letters behind the position of the main table are left out."""
        import pyarrow.compute as pc

        yield from self.main.batches(store, columns)
        position = None if store is None else self.main.position(store)
        for batch in self.dead.batches(store, columns):
            if position is None or "physical_offset" not in columns:
                yield batch
            else:
                yield batch.filter(pc.less(batch.column("physical_offset"), position.end))

    def data_files(self) -> list[DataFile]:
        """The data files of both."""
        return [*self.main.data_files(), *self.dead.data_files()]

    def size(self) -> TableSize:
        """The size of the main table."""
        return self.main.size()

    def commits(self) -> list[TableCommit]:
        """The commits of the main table."""
        return self.main.commits()


Texts: TypeAlias = "Mapping[str, str]"
"""Texts of positions by store."""
MOST: Final = 40
"""Number of commits to show."""


@attrs.frozen
class TableCommit:
    """One commit.

    :ivar at_ms: time of the commit, in ms since 1970
    :ivar rows: number of added rows
    :ivar files: number of added data files
    :ivar bytes: total size of these files
    :ivar took_ms: duration of the commit, as stored by the writer's next commit; ``None`` until
        then
    """

    at_ms: int
    rows: int
    files: int
    bytes: int
    took_ms: int | None = None


def of_iceberg(table: Table) -> list[TableCommit]:
    """The last commits from the summaries of snapshots, oldest first."""
    snapshots = sorted(table.metadata.snapshots, key=lambda each: each.timestamp_ms)[-MOST:]
    names = ("added-records", "added-data-files", "added-files-size")
    found = []
    for each in snapshots:
        summary = each.summary.additional_properties if each.summary else {}
        commit = TableCommit(each.timestamp_ms, *(int(summary.get(name) or 0) for name in names))
        found.append((commit, texts_in(summary)))
    return _with_times(found)


def of_delta(folder: Path) -> list[TableCommit]:
    """The last commits from the log of a local table, as far as it was not cleaned up."""
    paths = sorted(each for each in (folder / "_delta_log").glob("*.json") if each.stem.isdigit())
    found = []
    for path in paths[-MOST:]:
        with suppress(FileNotFoundError):
            found.append(_of_actions(map(json.loads, path.read_text().splitlines())))
    return _with_times(found)


def _of_actions(actions: Iterable[Mapping[str, Any]]) -> tuple[TableCommit, Texts]:
    at_ms = rows = files = size = 0
    texts: Texts = {}
    for each in actions:
        info = each.get("commitInfo", {})
        at_ms = int(info.get("timestamp", at_ms))
        texts = texts_of(info["userMetadata"]) if "userMetadata" in info else texts
        added = each.get("add")
        if added is not None:
            files += 1
            size += int(added["size"])
            rows += int(json.loads(added.get("stats") or "{}").get("numRecords", 0))
    return TableCommit(at_ms, rows, files, size), texts


def of_parquet(sink: ParquetSink) -> list[TableCommit]:
    """The last commits from the manifests that are kept."""
    return _with_times(list(_of_manifests(sink)))


def _of_manifests(sink: ParquetSink) -> Iterator[tuple[TableCommit, Texts]]:
    before: set[str] = set()
    for at_ms, texts, entries, is_whole in sink.history(MOST):
        new = [each for each in entries if each["path"] not in before]
        rows, size = (sum(int(each[name]) for each in new) for name in ("rows", "size_bytes"))
        before = {each["path"] for each in entries} | (set() if is_whole else before)
        yield TableCommit(at_ms, rows, len(new), size), texts


def _positions(texts: Texts) -> Iterator[Position]:
    """The valid positions; others were not written by lakelog and are ignored."""
    for text in texts.values():
        with suppress(ValueError):
            yield from_text(text)


def _with_times(found: Sequence[tuple[TableCommit, Texts]]) -> list[TableCommit]:
    """Add the duration of each commit; a later position has it under the commit's number."""
    positions_of_commits = [list(_positions(texts)) for _, texts in found]
    took = dict(
        each.took_ms for positions in positions_of_commits for each in positions if each.took_ms
    )
    commits, before = [], set[int]()
    for (commit, _), positions in zip(found, positions_of_commits, strict=True):
        numbers = {each.commit for each in positions}
        new = numbers - before
        before = numbers
        commits.append(attrs.evolve(commit, took_ms=took.get(new.pop()) if len(new) == 1 else None))
    return commits
