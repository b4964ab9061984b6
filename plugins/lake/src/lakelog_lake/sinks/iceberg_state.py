"""The snapshots that led to a version of an Iceberg table, whoever reads it: pyiceberg, or Java.

A property of the table marks that a store has been in it. It says the newest position, and does not
go back with a table that is rolled back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote, urlsplit

import attrs

from lakelog_lake.errors import TableMismatch
from lakelog_lake.sinks.history import PositionedVersion
from lakelog_lake.tables.position import key, texts_in

if TYPE_CHECKING:
    import pyarrow as pa


@attrs.frozen
class Snapshot:
    """One commit.

    :ivar number: in the order of commits, the first is 1
    :ivar operation: such as ``append``
    :ivar summary: its properties
    """

    number: int
    operation: str
    summary: Mapping[str, str]

    @property
    def is_first(self) -> bool:
        """Whether there was nothing before it in the table; also of one that was replaced.

        That it has no parent does not say so: expiry takes parents away.
        """
        added, total = (self.summary.get(f"{each}-data-files") for each in ("added", "total"))
        return self.number == 1 or (self.operation in _ADDING and added == total != "0")


_ADDING: Final = ("append", "overwrite")


class History(Protocol):
    """One version of a table."""

    def properties(self) -> Mapping[str, str]:
        """Of the table."""

    def ancestors(self) -> Iterator[Snapshot]:
        """The snapshots from the newest back, as far as they have not expired."""

    def last_rows(self) -> Iterable[pa.RecordBatch]:
        """See :class:`~lakelog_lake.sinks.history.TableHistory`."""

    def holds(self, store: str) -> bool:
        """Likewise."""


@attrs.define
class IcebergHistory:
    """See :class:`~lakelog_lake.sinks.history.TableHistory`."""

    _history: History
    _is_cut: bool = False

    def commits(self) -> Iterator[PositionedVersion]:
        """As far as snapshots have not expired."""
        for each in self._history.ancestors():
            self._is_cut = not each.is_first
            yield PositionedVersion(texts_in(each.summary))

    def begins(self) -> bool:
        """The oldest snapshot that is there began with an empty table."""
        return not self._is_cut

    def marks(self) -> Collection[str]:
        """By the table's properties."""
        return texts_in(self._history.properties())

    def mark(self, store: str) -> str | None:
        """Likewise: the newest position."""
        return self._history.properties().get(key(store))

    def last_rows(self) -> Iterable[pa.RecordBatch]:
        """Of the current snapshot."""
        return self._history.last_rows()

    def holds(self, store: str) -> bool:
        """Likewise."""
        return self._history.holds(store)


def is_local(location: str) -> bool:
    """Whether a table is in a folder of this machine."""
    return urlsplit(location).scheme in ("", "file")


def local_folder(location: str) -> Path:
    """The folder of a table on this machine; raises ``TableMismatch`` for any other."""
    parts = urlsplit(location)
    if not is_local(location):
        raise TableMismatch(
            f"{location} is no folder of this machine: tasks write data files to folders that are "
            "mounted; give the catalog a warehouse of file://"
        )
    return Path(unquote(parts.path))
