"""Files of object stores and other file systems that a URI names, by the libraries of the tables.

A file is there once its stream was closed: uploads in parts are completed by that. What was never
closed, as its writer was killed, no reader sees; the store's own rules remove such parts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import attrs

if TYPE_CHECKING:
    from pyarrow import fs
    from pyiceberg.io import FileIO


@attrs.frozen
class FoundFile:
    """A file that is there; :ivar written: seconds since 1970, if the store says it."""

    uri: str
    written: float | None


class Files(Protocol):
    """How the library of a table reaches files; goes to other processes with tasks."""

    def create(self, uri: str) -> Any:
        """A stream to write to."""

    def remove(self, uri: str) -> None:
        """Raises what the library raises, also where nothing is there."""

    def below(self, uri: str) -> Iterator[FoundFile]:
        """All files below a folder; none where it is not there."""


@attrs.frozen
class Remote:
    """A folder or file.

    :ivar uri: without a slash at its end
    :ivar files: opens it
    """

    uri: str
    files: Files

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self.uri}/{name}", self.files)

    def create(self) -> Any:
        """A stream to write to; raises ``OSError``, whatever the library raises."""
        try:
            return self.files.create(self.uri)
        except OSError:
            raise
        except Exception as error:
            raise OSError(f"{type(error).__name__}: {error}") from error

    def below(self) -> Iterator[FoundFile]:
        """All files below it."""
        return self.files.below(self.uri)


Folder: TypeAlias = "Path | Remote"


def below(folder: Folder) -> Iterator[str]:
    """Paths or URIs of all files below a folder."""
    if isinstance(folder, Path):
        yield from (str(each) for each in folder.rglob("*") if each.is_file())
    else:
        yield from (each.uri for each in folder.below())


Pairs: TypeAlias = "tuple[tuple[str, str], ...]"


def pairs(options: Mapping[str, Any]) -> Pairs:
    """Options that can go to other processes; those that are objects of this one stay here."""
    return tuple(sorted((key, it) for key, it in options.items() if isinstance(it, str)))


@attrs.frozen
class IcebergFiles:
    """By pyiceberg's FileIO.

    :ivar properties: of the table's own, which may have credentials that its catalog gave for it
    """

    properties: Pairs = attrs.field(repr=False)  # there may be secrets among them

    def create(self, uri: str) -> Any:
        """See :class:`Files`."""
        return _io(self, _scheme(uri)).new_output(uri).create(overwrite=True)  # names are new

    def remove(self, uri: str) -> None:
        """See :class:`Files`."""
        _io(self, _scheme(uri)).delete(uri)

    def below(self, uri: str) -> Iterator[FoundFile]:
        """See :class:`Files`; by Arrow, as FileIO does not list."""
        from pyarrow import fs
        from pyiceberg.io.pyarrow import PyArrowFileIO

        properties = dict(self.properties)
        scheme, netloc, path = PyArrowFileIO.parse_location(uri, properties)
        system = PyArrowFileIO(properties).fs_by_scheme(scheme, netloc)
        for each in system.get_file_info(_all_below(path)):
            if each.type is fs.FileType.File:
                written = None if each.mtime is None else each.mtime.timestamp()
                yield FoundFile(f"{uri}{each.path.removeprefix(path)}", written)


def _scheme(uri: str) -> str:
    return uri.partition("://")[0] + "://"


@lru_cache(maxsize=16)
def _io(files: IcebergFiles, scheme: str) -> FileIO:
    """One for all files of a table: it keeps its connections."""
    from pyiceberg.io import load_file_io

    return load_file_io(dict(files.properties), scheme)


def _all_below(path: str) -> fs.FileSelector:
    from pyarrow import fs

    return fs.FileSelector(path, recursive=True, allow_not_found=True)


@attrs.frozen
class DeltaFiles:
    """By deltalake's file system.

    :ivar root: of the table; it reaches nothing else
    :ivar options: storage options, as deltalake has them
    """

    root: str
    options: Pairs = attrs.field(repr=False)  # there may be secrets among them

    def create(self, uri: str) -> Any:
        """See :class:`Files`."""
        return _handler(self).open_output_stream(self._path(uri))

    def remove(self, uri: str) -> None:
        """See :class:`Files`."""
        _handler(self).delete_file(self._path(uri))

    def below(self, uri: str) -> Iterator[FoundFile]:
        """See :class:`Files`."""
        from pyarrow import fs

        for each in _handler(self).get_file_info_selector(_all_below(self._path(uri))):
            if each.type is fs.FileType.File:
                yield FoundFile(f"{self.root}/{each.path}", None)

    def names(self) -> list[str]:
        """Of what is right below the root."""
        from pyarrow import fs

        selector = fs.FileSelector("", allow_not_found=True)
        return sorted(each.base_name for each in _handler(self).get_file_info_selector(selector))

    def _path(self, uri: str) -> str:
        return uri.removeprefix(self.root).lstrip("/")


@lru_cache(maxsize=16)
def _handler(files: DeltaFiles) -> Any:
    from deltalake.fs import DeltaStorageHandler

    return DeltaStorageHandler(files.root, dict(files.options))


def sync(path: Folder) -> None:
    """Make a file's bytes, or the names in a folder, durable: a power cut then finds them.

    An object store has what it has answered for.
    """
    if isinstance(path, Remote):
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
