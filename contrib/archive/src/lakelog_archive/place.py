"""A folder behind fsspec, with what an archive needs of it: durable writes, ranges, names."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Final

import attrs

_CHUNK_BYTES: Final = 8 << 20


@attrs.frozen
class ArchiveFolder:
    """A folder; names are relative to it.

    :ivar fs: of fsspec
    :ivar folder: as ``fs`` wants it
    """

    fs: Any
    folder: str
    _durable: set[str] = attrs.field(factory=set, init=False, eq=False, repr=False)

    @classmethod
    def of(cls, url: str) -> ArchiveFolder:
        """The folder at ``url``; raises what fsspec raises for one that it does not understand."""
        import fsspec  # type: ignore[import-untyped]  # it has no types

        fs, folder = fsspec.core.url_to_fs(url)
        return cls(fs, folder.rstrip("/"))

    @property
    def name(self) -> str:
        """What messages call it."""
        return str(self.fs.unstrip_protocol(self.folder))

    def path(self, name: str) -> str:
        """Of a file, as ``fs`` wants it."""
        return f"{self.folder}/{name}"

    def names(self, folder: str) -> list[str]:
        """What is in a folder of it, sorted; nothing if it is not there."""
        self.fs.invalidate_cache(self.path(folder))
        try:
            found = self.fs.ls(self.path(folder), detail=False)
        except FileNotFoundError:
            return []
        return sorted(each.rstrip("/").rpartition("/")[2] for each in found)

    def content(self, name: str) -> bytes | None:
        """Of a small file; ``None`` if it is not there."""
        try:
            return bytes(self.fs.cat_file(self.path(name)))
        except FileNotFoundError:
            return None

    def read(self, name: str, position: int, length: int) -> bytes:
        """A range of a file."""
        return bytes(self.fs.cat_file(self.path(name), start=position, end=position + length))

    def copy_in(self, source: Path, name: str) -> None:
        """Put a file there, durable on return."""
        self._make_folder(name)
        with source.open("rb") as data, self.fs.open(self.path(name), "wb") as file:
            while chunk := data.read(_CHUNK_BYTES):
                file.write(chunk)
        self._sync(name)

    def write(self, name: str, content: bytes) -> None:
        """Put a small file there, durable on return; on a local disk, all of it or nothing."""
        self._make_folder(name)
        if not self._is_local:
            self.fs.pipe_file(self.path(name), content)
            return
        temporary = name + ".tmp"
        with self.fs.open(self.path(temporary), "wb") as file:
            file.write(content)
        self._sync(temporary)
        os.replace(self.path(temporary), self.path(name))
        _sync_path(os.path.dirname(self.path(name)))

    def sha256(self, name: str) -> tuple[int, str]:
        """Length and checksum of what is read from there."""
        with self.fs.open(self.path(name), "rb") as file:
            return _digest(file)

    @property
    def _is_local(self) -> bool:
        protocol = self.fs.protocol
        return "file" in ((protocol,) if isinstance(protocol, str) else protocol)

    def _make_folder(self, name: str) -> None:
        """What is there already may have been made by one that was killed before it was durable."""
        folder = self.path(name).rpartition("/")[0]
        if folder in self._durable:
            return
        new = [each for each in Path(folder).parents if not each.exists()]
        if not self.fs.isdir(folder):
            self.fs.makedirs(folder, exist_ok=True)
        if self._is_local:
            ours = (Path(self.folder), Path(self.folder).parent)
            for each in dict.fromkeys((*ours, *(made.parent for made in new))):
                _sync_path(str(each))
        self._durable.add(folder)

    def _sync(self, name: str) -> None:
        """On a local disk; other systems have it when a file is closed."""
        if self._is_local:
            path = self.path(name)
            _sync_path(path)
            _sync_path(os.path.dirname(path))


def sha256_of(path: Path) -> tuple[int, str]:
    """Length and checksum of a local file."""
    with path.open("rb") as file:
        return _digest(file)


def _digest(file: Any) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


def _sync_path(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
