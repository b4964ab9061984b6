"""What tables have in common that are folders: Delta and Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final, Generic, TypeVar

import attrs

from lakelog_lake.tables.fields import Shape
from lakelog_lake.tables.remote import Remote

DATA: Final = "data"


_Path = TypeVar("_Path", Path, "Path | Remote")


@attrs.frozen
class FolderTable(Generic[_Path]):
    """:ivar path: the table's folder; :ivar shape: what it should be."""

    kind: ClassVar[str]
    path: _Path
    shape: Shape = attrs.field(factory=Shape)

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
