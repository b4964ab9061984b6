"""What an Iceberg table says of a store, whoever reads it: pyiceberg, or Java.

What the snapshots say counts: they know of a table that was rolled back. Where they have expired,
the table's property counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import attrs

from lakelog_lake.errors import TableMismatch
from lakelog_lake.tables.position import Position, from_text, key


@attrs.frozen
class Snapshot:
    """:ivar number: in the order of commits, the first is 1; :ivar summary: its properties."""

    number: int
    summary: Mapping[str, str]


class History(Protocol):
    """One version of a table."""

    def property(self, name: str) -> str | None:
        """A property of the table."""

    def ancestors(self) -> Iterator[Snapshot]:
        """The snapshots from the newest back, as far as they have not expired."""

    def snapshots(self) -> Iterable[Snapshot]:
        """All that are there, also of other branches."""


def position_of(history: History, store: str, name: str) -> Position | None:
    """What the table ``name`` says of ``store``; raises ``TableMismatch`` if that was undone."""
    oldest = None
    for oldest in history.ancestors():
        found = oldest.summary.get(key(store))
        if found is not None:
            return _parsed(found, name)
    kept = history.property(key(store))
    if kept is not None and _was_undone(history, oldest, store):
        raise TableMismatch(
            f"{name} says that the store {store} has landed in it, and none of its snapshots has "
            "done so: it was rolled back or replaced. Look whether its rows are there; if they "
            f"are not, remove the table's property {key(store)!r} to land from the beginning"
        )
    return None if kept is None else _parsed(kept, name)


def _was_undone(history: History, oldest: Snapshot | None, store: str) -> bool:
    """Whether what ``store`` landed is not in the table, rather than in snapshots that expired.

    Expiry takes the parents away from what it leaves; the first of all commits has number 1.
    """
    if oldest is None or oldest.number == 1:
        return True
    return any(key(store) in each.summary for each in history.snapshots())


def _parsed(text: str, name: str) -> Position:
    try:
        return from_text(text)
    except ValueError as error:
        raise TableMismatch(f"{name}: {error}") from None


def local_folder(location: str) -> Path:
    """The folder of a table on this machine; raises ``TableMismatch`` for any other."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        raise TableMismatch(
            f"{location} is no folder of this machine: tasks write data files to folders that are "
            "mounted; give the catalog a warehouse of file://"
        )
    return Path(unquote(parts.path))
