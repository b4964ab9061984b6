"""Local files of pyiceberg that are synced when they are closed.

A catalog that points to metadata lost in a power cut is a lost table. Data files are not written
through this class.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from lakelog_lake.tables.remote import sync


class SyncedFileIO(PyArrowFileIO):
    """Pyiceberg's own FileIO, except for :meth:`new_output`."""

    def new_output(self, location: str) -> PyArrowFile:
        """A file that is synced, with its folder, when it is closed."""
        scheme, host, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return _SyncedFile(location, path, self.fs_by_scheme(scheme, host))


class _SyncedFile(PyArrowFile):
    def __init__(self, location: str, path: str, fs: Any) -> None:
        super().__init__(location, path, fs)
        self.place = Path(path)

    def create(self, overwrite: bool = False) -> Any:
        return _Stream(super().create(overwrite), self.place)


class _Stream:
    """The methods that Avro's writer and ``with`` need of a stream."""

    def __init__(self, inner: Any, path: Path) -> None:
        self._inner, self._path = inner, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close, and sync the file and its folder."""
        if not self._inner.closed:
            self._inner.close()
            sync(self._path)
            sync(self._path.parent)
