"""The protocol of all kinds of tables, and the common part of tables in folders: Delta and Parquet.

The laws: a commit adds files and the positions of all stores of the table atomically. A commit
names the version of the table from which the position was read, and fails if that version is no
longer the newest. A sink never retries.

The checks whether messages can land in an existing table are the same for all kinds. A kind is
registered in ``locations.py``, or by an entry point in ``lakelog_lake.formats``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar, runtime_checkable

import attrs

from lakelog_lake.errors import TableMismatch
from lakelog_lake.tables import data_files, remote
from lakelog_lake.tables.position import Position, TableHistory, TableVersion
from lakelog_lake.tables.settings import Resume
from lakelog_lake.tables.shape import Layout, TableShape, keys_text


@attrs.frozen
class Head:
    """One version of a table.

    :ivar position: the position of one store; ``None`` if that store never landed in the table
    :ivar version: the sink's own handle of the version, for a commit
    :ivar form: identifies what files must look like: that of :class:`Layout` if they still fit
    :ivar history: the commits that led to the version; ``None`` if they are not known
    :ivar texts: the texts of the positions of all stores, as far as commits show them
    """

    position: Position | None
    version: Any = attrs.field(repr=False)
    form: Hashable = None
    history: TableHistory | None = attrs.field(default=None, repr=False)
    texts: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @classmethod
    def of(cls, version: TableVersion, store: str, resume: Resume | None, form: Hashable) -> Head:
        """The version ``version`` for ``store``.

        :param resume: see :meth:`Sink.head`
        :param form: that of the version

        Raises :class:`~lakelog_lake.errors.PositionMissing`.
        """
        known = version.known
        return cls(known.position(store, resume), version, form, known.line, known.texts)


class Sink(Protocol):
    """One table."""

    @property
    def name(self) -> str:
        """The name of the table in messages."""

    @property
    def folder(self) -> remote.Folder:
        """The folder for data files; it exists after :meth:`prepare`."""

    @property
    def layout(self) -> Layout:
        """The columns and partitions of data files."""

    def prepare(self) -> None:
        """Create the table if it does not exist; raise ``TableMismatch`` if it does not fit."""

    def marked(self) -> str | None:
        """The only topic of the table; ``None`` if it has all topics or does not exist."""

    def head(self, store: str, resume: Resume | None = None) -> Head:
        """Read the newest version, without any cache.

        :param resume: what counts if the table does not show the position

        Raises :class:`~lakelog_lake.errors.PositionMissing`.
        """

    def commit(
        self, head: Head, store: str, files: Sequence[data_files.FileFacts], position: Position
    ) -> None:
        """Add ``files`` and set the position of ``store`` atomically.

        Raises :class:`~lakelog_lake.errors.Conflict` if ``head`` is no longer the newest version;
        then nothing was committed. After any other error the commit may or may not have happened.
        """


@runtime_checkable
class Trimmed(Protocol):
    """A table whose commits also remove old versions, according to its history setting."""

    def keep(self, history: str) -> None:
        """Set the history that the table keeps, see :mod:`lakelog_lake.tables.settings`.

        Raises :class:`~lakelog.errors.SettingsError`.
        """


DELTA_LOG: Final = "_delta_log"
MANIFESTS: Final = "_lakelog"
METADATA: Final = "metadata"
OF_TABLES: Final = {
    DELTA_LOG: f"{DELTA_LOG}/*.json",
    MANIFESTS: f"{MANIFESTS}/{'[0-9]' * 20}.json",
    METADATA: f"{METADATA}/*.metadata.json",
}
"""The files by which a folder is that of a Delta, a Parquet or an Iceberg table."""


def check_place(name: str, folder: Path, own: str) -> None:
    """Raise ``TableMismatch`` if a new table would be in the folder of another one, or below it.

    Each of both would take the other's data files for what failed commits left: a Parquet table
    hides them, and an expiry removes them.

    :param own: the mark of the new table's kind, which is no other table in ``folder`` itself
    """
    for place in (folder, *folder.parents):
        for mark, pattern in OF_TABLES.items():
            if (place, mark) != (folder, own) and any(place.glob(pattern)):
                raise TableMismatch(
                    f"{name} would be in {place}, which is another table, as its {mark} shows: "
                    "each would remove the other's files. Give a folder outside of it"
                )


DATA: Final = "data"
_Path = TypeVar("_Path", Path, "Path | remote.Remote")


@attrs.frozen
class FolderTable(Generic[_Path]):
    """A table in a folder.

    :ivar path: the table's folder
    :ivar shape: the expected columns and partitions
    """

    kind: ClassVar[str]
    path: _Path
    shape: TableShape = attrs.field(factory=TableShape)

    @property
    def name(self) -> str:
        """The kind and folder of the table, for messages."""
        return f"the {self.kind} table {self.path}"

    @property
    def folder(self) -> _Path:
        """The folder of the data files."""
        return self.path / DATA

    def within(self, path: str) -> str:
        """The path of a data file relative to the table's folder."""
        if isinstance(self.path, remote.Remote):
            return path.removeprefix(f"{self.path.uri}/")
        return str(Path(path).relative_to(self.path))


KEY: Final = ("store", "topic", "queue_id", "queue_offset", "physical_offset")
"""Columns that a table must have; missing others are added."""


@attrs.frozen
class Kinds:
    """The types of a table's columns, as texts of one kind of table.

    :ivar types: types by column name
    :ivar required: columns that must not be null
    :ivar defaults: columns that a writer must not leave null in place of a value
    """

    types: Mapping[str, str]
    required: frozenset[str] = frozenset()
    defaults: frozenset[str] = frozenset()


def missing(
    name: str,
    found: Kinds,
    ours: Kinds,
    grows: Callable[[str], bool] = lambda _column: False,
) -> list[str]:
    """Return the columns to add; raises ``TableMismatch`` if the table cannot take the rows.

    :param found: the columns of the table
    :param ours: the columns of the rows
    :param grows: returns whether a column of another type accepts our type, or can be changed to
    """
    wrong = [
        f"{each} is {found.types[each]}, not {kind}"
        for each, kind in ours.types.items()
        if found.types.get(each, kind) != kind and not grows(each)
    ]
    wrong += [f"{each} must not be null" for each in sorted(found.required - set(ours.types))]
    wrong += [f"{each} has a default value" for each in sorted(found.defaults - set(ours.types))]
    lacks = [each for each in ours.types if each not in found.types]
    wrong += [f"{each} is missing" for each in KEY if each in lacks]
    if wrong:
        raise TableMismatch(
            f"{name} has other columns than lakelog's: {'; '.join(wrong)}: land in a new table"
        )
    return lacks


def check_partition(name: str, found: Sequence[str], ours: Sequence[str]) -> None:
    """Raise ``TableMismatch`` unless a table is partitioned as requested."""
    if tuple(found) != tuple(ours):
        raise TableMismatch(
            f"{name} has other partitions than requested: it is partitioned by "
            f"{keys_text(found)}, not by {keys_text(ours)}: give that as --partition, or land in a "
            "new table"
        )


def check_topic(name: str, found: str | None, ours: str | None) -> None:
    """Raise ``TableMismatch`` unless a table is marked with the expected topic."""
    if found != ours:
        holds = "all topics" if found is None else f"the topic {found!r}"
        raise TableMismatch(
            f"{name} holds the messages of {holds}, not those of "
            f"{'all topics' if ours is None else repr(ours)}: give another --table"
        )
