"""The protocol of all kinds of tables, and the common part of tables in folders: Delta and Parquet.

The laws: a commit adds files and the positions of all stores of the table atomically. A commit
names the version of the table from which the position was read, and fails if that version is no
longer the newest. A sink never retries.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar, runtime_checkable

import attrs

from lakelog_lake.tables.fields import Layout, TableShape
from lakelog_lake.tables.file_facts import FileFacts
from lakelog_lake.tables.position import Position
from lakelog_lake.tables.remote import Folder, Remote


@attrs.frozen
class Head:
    """One version of a table.

    :ivar position: the position of one store; ``None`` if that store never landed in the table
    :ivar version: the sink's own handle of the version, for a commit
    """

    position: Position | None
    version: Any = attrs.field(repr=False)


class Sink(Protocol):
    """One table."""

    @property
    def name(self) -> str:
        """The name of the table in messages."""

    @property
    def folder(self) -> Folder:
        """The folder for data files; it exists after :meth:`prepare`."""

    @property
    def layout(self) -> Layout:
        """The columns and partitions of data files."""

    def prepare(self) -> None:
        """Create the table if it does not exist; raise ``TableMismatch`` if it does not fit."""

    def head(self, store: str) -> Head:
        """Read the newest version, without any cache."""

    def commit(
        self, head: Head, store: str, files: Sequence[FileFacts], position: Position
    ) -> None:
        """Add ``files`` and set the position of ``store`` atomically.

        Raises :class:`~lakelog_lake.errors.Conflict` if ``head`` is no longer the newest version;
        then nothing was committed. After any other error the commit may or may not have happened.
        """


class Markable(Sink, Protocol):
    """A table that can be marked as that of a single topic."""

    def marked(self) -> str | None:
        """The only topic of the table; ``None`` if it has all topics or does not exist."""


@runtime_checkable
class Trimmed(Protocol):
    """A table whose commits also remove old versions, according to its history setting."""

    def keep(self, history: str) -> None:
        """Set the history that the table keeps, see :mod:`lakelog_lake.tables.history_setting`.

        Raises :class:`~lakelog.errors.SettingsError`.
        """


DATA: Final = "data"


_Path = TypeVar("_Path", Path, "Path | Remote")


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
        if isinstance(self.path, Remote):
            return path.removeprefix(f"{self.path.uri}/")
        return str(Path(path).relative_to(self.path))
