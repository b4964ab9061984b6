"""What tables have in common that are folders: Delta and Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

import attrs

from lakelog_lake.tables.fields import Shape

DATA: Final = "data"


@attrs.frozen
class FolderTable:
    """:ivar path: the table's folder; :ivar shape: what it should be."""

    kind: ClassVar[str]
    path: Path
    shape: Shape = attrs.field(factory=Shape)

    @property
    def name(self) -> str:
        """The folder."""
        return f"the {self.kind} table {self.path}"

    @property
    def folder(self) -> Path:
        """Of the data files."""
        return self.path / DATA

    def within(self, path: str) -> str:
        """A data file as the table names it: below its folder."""
        return str(Path(path).relative_to(self.path))
