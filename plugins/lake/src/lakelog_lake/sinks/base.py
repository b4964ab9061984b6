"""What every kind of table does.

The laws: a commit carries files and position at once, and the positions of all other stores in the
table; it names the version of the table whose position was read, and is refused when that is no
longer the newest; nothing is tried again in here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import attrs

from lakelog_lake.tables.fields import Layout
from lakelog_lake.tables.file_facts import FileFacts
from lakelog_lake.tables.position import Position
from lakelog_lake.tables.remote import Folder


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
