"""Files at a URI, in object stores and other file systems, through the libraries of the tables.

A file exists once its stream is closed, which completes a multipart upload. If the writer is killed
before, there is no file for readers; lifecycle rules of the object store remove the uploaded parts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

import attrs
import pyarrow as pa
from pyarrow import fs

from lakelog.errors import raised_by_handler
from lakelog_lake.errors import TableMismatch

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


@attrs.frozen
class FoundFile:
    """An existing file.

    :ivar written: time of its last write, in seconds since 1970, if the store provides it
    """

    uri: str
    written: float | None


class Files(Protocol):
    """File access through the library of a table; can be sent to other processes."""

    def create(self, uri: str) -> Any:
        """Open a stream for writing."""

    def read(self, uri: str) -> bytes:
        """Read a file; raises ``FileNotFoundError``."""

    def remove(self, uri: str) -> None:
        """Remove a file; raises the library's error, also if it does not exist."""

    def below(self, uri: str) -> Iterator[FoundFile]:
        """All files below a folder; none if it does not exist."""


_COPIED_BYTES: Final = 1 << 16


@attrs.frozen
class Remote:
    """A remote folder or file.

    :ivar uri: without a slash at its end
    :ivar files: the library that opens it
    """

    uri: str
    files: Files

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self.uri}/{name}", self.files)

    def create(self) -> Any:
        """Open a stream for writing; raises ``OSError`` for any error of the library."""
        try:
            return self.files.create(self.uri)
        except OSError:
            raise
        except Exception as error:
            if raised_by_handler(error):
                raise
            raise OSError(f"{type(error).__name__}: {error}") from error

    def write_bytes(self, data: bytes) -> None:
        """Write the whole file; raises as :meth:`create`, and the library's errors."""
        with self.create() as file:
            # Arrow gives deltalake's streams a buffer, of which they take none, unless it copies.
            is_python = isinstance(file, pa.PythonFile)
            stream = pa.BufferedOutputStream(file, _COPIED_BYTES) if is_python else file
            stream.write(data)
            stream.flush()

    def read_bytes(self) -> bytes:
        """Read the file; raises ``FileNotFoundError``."""
        return self.files.read(self.uri)


Folder: TypeAlias = "Path | Remote"


def below(folder: Folder) -> Iterator[str]:
    """Paths or URIs of all files below a folder."""
    if isinstance(folder, Path):
        yield from (str(each) for each in folder.rglob("*") if each.is_file())
    else:
        yield from (each.uri for each in folder.files.below(folder.uri))


Pairs: TypeAlias = "tuple[tuple[str, str], ...]"


def pairs(options: Mapping[str, Any]) -> Pairs:
    """The options that can be sent to other processes, without Python objects."""
    return tuple(sorted((key, it) for key, it in options.items() if isinstance(it, str)))


@attrs.frozen
class IcebergFiles:
    """Files through pyiceberg's FileIO.

    :ivar properties: the table's FileIO properties, possibly with credentials from its catalog
    """

    properties: Pairs = attrs.field(repr=False)  # may contain secrets

    def create(self, uri: str) -> Any:
        """See :class:`Files`."""
        return _io(self, uri.partition(":")[0]).new_output(uri).create(overwrite=True)  # new name

    def read(self, uri: str) -> bytes:
        """See :class:`Files`."""
        with _io(self, uri.partition(":")[0]).new_input(uri).open() as file:
            return bytes(file.read())

    def remove(self, uri: str) -> None:
        """See :class:`Files`."""
        _io(self, uri.partition(":")[0]).delete(uri)

    def below(self, uri: str) -> Iterator[FoundFile]:
        """See :class:`Files`; uses Arrow, as FileIO cannot list."""
        from pyiceberg.io.pyarrow import PyArrowFileIO

        properties = dict(self.properties)
        scheme, netloc, path = PyArrowFileIO.parse_location(uri, properties)
        system = PyArrowFileIO(properties).fs_by_scheme(scheme, netloc)
        for each in system.get_file_info(_all_below(path)):
            if each.type is fs.FileType.File:
                written = None if each.mtime is None else each.mtime.timestamp()
                yield FoundFile(f"{uri}{each.path.removeprefix(path)}", written)


@lru_cache(maxsize=16)
def _io(files: IcebergFiles, scheme: str) -> FileIO:
    """One FileIO for all files of a table, to reuse its connections."""
    from pyiceberg.io import load_file_io

    return load_file_io(dict(files.properties), f"{scheme}://")


def _all_below(path: str) -> fs.FileSelector:

    return fs.FileSelector(path, recursive=True, allow_not_found=True)


@attrs.frozen
class DeltaFiles:
    """Files through deltalake's file system.

    :ivar root: URI of the table's folder; other files cannot be accessed
    :ivar options: storage options, as for deltalake
    """

    root: str
    options: Pairs = attrs.field(repr=False)  # may contain secrets

    def create(self, uri: str) -> Any:
        """See :class:`Files`."""
        return _handler(self).open_output_stream(self._path(uri))

    def read(self, uri: str) -> bytes:
        """See :class:`Files`."""
        with fs.PyFileSystem(_handler(self)).open_input_file(self._path(uri)) as file:
            return bytes(file.read())

    def remove(self, uri: str) -> None:
        """See :class:`Files`."""
        _handler(self).delete_file(self._path(uri))

    def below(self, uri: str) -> Iterator[FoundFile]:
        """See :class:`Files`."""
        for each in _handler(self).get_file_info_selector(_all_below(self._path(uri))):
            if each.type is fs.FileType.File:
                yield FoundFile(f"{self.root}/{each.path}", None)

    def names(self) -> list[str]:
        """The names directly below the root."""
        selector = fs.FileSelector("", allow_not_found=True)
        return sorted(each.base_name for each in _handler(self).get_file_info_selector(selector))

    def _path(self, uri: str) -> str:
        return uri.removeprefix(self.root).lstrip("/")


@lru_cache(maxsize=16)
def _handler(files: DeltaFiles) -> Any:
    from deltalake.fs import DeltaStorageHandler

    return DeltaStorageHandler(files.root, dict(files.options))


def sync(path: Folder) -> None:
    """Sync a file's bytes, or the names in a folder; does nothing in an object store.

    An object store acknowledges a write only once it is durable.
    """
    if isinstance(path, Remote):
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


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
