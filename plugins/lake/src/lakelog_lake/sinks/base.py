"""What every kind of table does, and what those have in common that are folders: Delta and Parquet.

The laws: a commit carries files and position at once, and the positions of all other stores in the
table; it names the version of the table whose position was read, and is refused when that is no
longer the newest; nothing is tried again in here.
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

    :ivar position: what it says of one store; ``None`` if that never landed in it
    :ivar version: the sink's own, by which a commit names it
    """

    position: Position | None
    version: Any = attrs.field(repr=False)


class Sink(Protocol):
    """One table."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def folder(self) -> Folder:
        """Where tasks put data files; it is there once :meth:`prepare` is done."""

    @property
    def layout(self) -> Layout:
        """What stands in data files."""

    def prepare(self) -> None:
        """Make the table if it is not there; raise ``TableMismatch`` if it is another one."""

    def head(self, store: str) -> Head:
        """Read the newest version, past every cache."""

    def commit(
        self, head: Head, store: str, files: Sequence[FileFacts], position: Position
    ) -> None:
        """Add ``files`` and move the position of ``store``, both or nothing.

        Raises :class:`~lakelog_lake.errors.Conflict` when ``head`` is not the newest
        version any more, and then nothing was done. After any other error, either may be.
        """


class Markable(Sink, Protocol):
    """A table that can be the only one of a topic."""

    def marked(self) -> str | None:
        """The topic that the table says it is for; ``None`` also where there is no table."""


@runtime_checkable
class Trimmed(Protocol):
    """A table from which commits take what its history is not to keep."""

    def keep(self, history: str) -> None:
        """Have the table keep so much, see :mod:`lakelog_lake.tables.kept`."""


DATA: Final = "data"


_Path = TypeVar("_Path", Path, "Path | Remote")


@attrs.frozen
class FolderTable(Generic[_Path]):
    """:ivar path: the table's folder; :ivar shape: what it should be."""

    kind: ClassVar[str]
    path: _Path
    shape: TableShape = attrs.field(factory=TableShape)

    @property
    def name(self) -> str:
        """The folder."""
        return f"the {self.kind} table {self.path}"

    @property
    def folder(self) -> _Path:
        """Of the data files."""
        return self.path / DATA

    def within(self, path: str) -> str:
        """A data file as the table names it: below its folder."""
        if isinstance(self.path, Remote):
            return path.removeprefix(f"{self.path.uri}/")
        return str(Path(path).relative_to(self.path))
