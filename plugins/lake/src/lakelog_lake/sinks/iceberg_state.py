"""The snapshots that led to a version of an Iceberg table, read by pyiceberg or by Java.

A table property with the newest position marks that a store has landed in the table. It is not
rolled back with the table.
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
    """One snapshot.

    :ivar number: its sequence number, from 1 on
    :ivar operation: its operation, such as ``append``
    :ivar summary: the properties of its summary
    """

    number: int
    operation: str
    summary: Mapping[str, str]

    @property
    def is_first(self) -> bool:
        """Whether the table was empty before it; also true after a replacement.

        A missing parent does not prove this: expiry removes parents.
        """
        added, total = (self.summary.get(f"{each}-data-files") for each in ("added", "total"))
        return self.number == 1 or (self.operation in _ADDING and added == total != "0")


_ADDING: Final = ("append", "overwrite")


class History(Protocol):
    """The state of one version of a table."""

    def properties(self) -> Mapping[str, str]:
        """The properties of the table."""

    def ancestors(self) -> Iterator[Snapshot]:
        """The snapshots that have not expired, newest first."""

    def last_rows(self) -> Iterable[pa.RecordBatch]:
        """See :class:`~lakelog_lake.sinks.history.TableHistory`."""

    def holds(self, store: str) -> bool:
        """See :class:`~lakelog_lake.sinks.history.TableHistory`."""


@attrs.define
class IcebergHistory:
    """See :class:`~lakelog_lake.sinks.history.TableHistory`."""

    _history: History
    _is_cut: bool = False

    def commits(self) -> Iterator[PositionedVersion]:
        """The commits of the snapshots that have not expired, newest first."""
        for each in self._history.ancestors():
            self._is_cut = not each.is_first
            yield PositionedVersion(texts_in(each.summary))

    def begins(self) -> bool:
        """Whether the oldest known snapshot was the first of the table."""
        return not self._is_cut

    def marks(self) -> Collection[str]:
        """The stores with a position among the table's properties."""
        return texts_in(self._history.properties())

    def mark(self, store: str) -> str | None:
        """The newest position of ``store``, from the table's properties."""
        return self._history.properties().get(key(store))

    def last_rows(self) -> Iterable[pa.RecordBatch]:
        """The rows of the current snapshot."""
        return self._history.last_rows()

    def holds(self, store: str) -> bool:
        """Whether the table has a row of ``store``."""
        return self._history.holds(store)


def is_local(location: str) -> bool:
    """Whether a table is in a local folder."""
    return urlsplit(location).scheme in ("", "file")


def local_folder(location: str) -> Path:
    """The local folder of a table; raises ``TableMismatch`` for any other location."""
    parts = urlsplit(location)
    if not is_local(location):
        raise TableMismatch(
            f"{location} is not a local folder: tasks write data files to local or mounted "
            "folders; give the catalog a warehouse of file://"
        )
    return Path(unquote(parts.path))
