"""A folder accessed through fsspec: durable writes, range reads, names."""

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

    :ivar fs: the fsspec file system
    :ivar folder: the path within ``fs``
    """

    fs: Any
    folder: str
    _durable: set[str] = attrs.field(factory=set, init=False, eq=False, repr=False)

    @classmethod
    def of(cls, url: str) -> ArchiveFolder:
        """The folder at ``url``; raises fsspec's errors for an unsupported one."""
        import fsspec  # type: ignore[import-untyped]  # it has no types

        fs, folder = fsspec.core.url_to_fs(url)
        return cls(fs, folder.rstrip("/"))

    @property
    def name(self) -> str:
        """The URL for messages."""
        return str(self.fs.unstrip_protocol(self.folder))

    def path(self, name: str) -> str:
        """The path of a file within ``fs``."""
        return f"{self.folder}/{name}"

    def names(self, folder: str) -> list[str]:
        """The names in a subfolder, sorted; empty if it does not exist."""
        self.fs.invalidate_cache(self.path(folder))
        try:
            found = self.fs.ls(self.path(folder), detail=False)
        except FileNotFoundError:
            return []
        return sorted(each.rstrip("/").rpartition("/")[2] for each in found)

    def content(self, name: str) -> bytes | None:
        """The content of a small file; ``None`` if it does not exist."""
        try:
            return bytes(self.fs.cat_file(self.path(name)))
        except FileNotFoundError:
            return None

    def read(self, name: str, position: int, length: int) -> bytes:
        """Read a range of a file."""
        return bytes(self.fs.cat_file(self.path(name), start=position, end=position + length))

    def copy_in(self, source: Path, name: str) -> None:
        """Copy the local file ``source`` to ``name``; durable on return."""
        self._make_folder(name)
        with source.open("rb") as data, self.fs.open(self.path(name), "wb") as file:
            while chunk := data.read(_CHUNK_BYTES):
                file.write(chunk)
        self._sync(name)

    def write(self, name: str, content: bytes) -> None:
        """Write a small file, durable on return; on a local disk atomically."""
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
        """Length in bytes and SHA-256 in hex of a file of the folder; raises its read errors."""
        with self.fs.open(self.path(name), "rb") as file:
            return _digest(file)

    @property
    def _is_local(self) -> bool:
        protocol = self.fs.protocol
        return "file" in ((protocol,) if isinstance(protocol, str) else protocol)

    def _make_folder(self, name: str) -> None:
        """Create the folder of a file, durably on a local disk.

        Existing folders are synced too: a killed process may have created them without a sync.
        """
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
        """Sync on a local disk; other systems have made a file durable when it is closed."""
        if self._is_local:
            path = self.path(name)
            _sync_path(path)
            _sync_path(os.path.dirname(path))


def sha256_of(path: Path) -> tuple[int, str]:
    """Length in bytes and SHA-256 in hex of a local file."""
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
