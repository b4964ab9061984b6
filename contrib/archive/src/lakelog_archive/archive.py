"""The archive of one store: copies sealed segments, verifies the copies, and reads them.

``commitlog/NAME`` in its folder is the segment as in the log, so that the folder can be read as a
store; ``manifest/NAME`` is its manifest entry. A segment is copied, read back and compared, the
entry is written, and only then may the segment be deleted. A crash at any step leaves the segment
in the log.

An entry is a file with one line of JSON, since object stores cannot append. Members: ``v`` 1,
``start`` (offset of the segment's first byte in the log), ``size`` in bytes, ``sha256`` of all
bytes, in hex.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from attrs import validators

from lakelog.errors import SettingsError, StoreError
from lakelog.files.identity import read_identity
from lakelog.format.layout import COMMITLOG_DIR, SEGMENT_NAME_DIGITS, segment_name
from lakelog.hooks import Context

_CHUNK_BYTES: Final = 8 << 20
_VERSION: Final = 1
_SHA256: Final = re.compile("[0-9a-f]{64}")
MANIFEST_DIR: Final = "manifest"


def _is_given(_settings: object, _attribute: object, url: str) -> None:
    if not url.strip():
        raise ValueError("url is empty; give a directory, or a URL such as s3://bucket/folder")


@attrs.frozen(kw_only=True)
class ArchiveSettings:
    """The location of archived segments.

    :ivar url: a directory, or an fsspec URL such as ``s3://bucket/folder``; keys and endpoints are
        in fsspec's own configuration. Each store has its own folder there
    :ivar read_bytes: smallest number of bytes to fetch at once
    """

    url: str = attrs.field(validator=_is_given)
    read_bytes: int = attrs.field(default=1 << 20, validator=validators.ge(4096))


@attrs.define(eq=False)
class LazyArchive:
    """The :class:`lakelog.hooks.SegmentSource` of a store that is being opened.

    A new store gets its UUID, by which its archive is named, only later.
    """

    settings: ArchiveSettings
    context: Context
    _archive: Archive | None = None

    @property
    def commitlog(self) -> Path:
        """The folder of the store's segments."""
        return self.context.core.commitlog(self.context.path)

    def keep(self, path: Path, start: int) -> None:
        """Store a segment; see :meth:`lakelog_archive.archive.Archive.keep`.

        Raises :class:`~lakelog_archive.archive.ArchiveError` also if the store has no UUID.
        """
        self._existing("it has no UUID to archive it under").keep(path, start)

    def starts(self) -> Sequence[int]:
        """Start offsets of the archived segments, in order."""
        archive = self._found()
        return [] if archive is None else archive.starts()

    def read(self, start: int, position: int, length: int) -> bytes:
        """Read a range of an archived segment; see :meth:`lakelog_archive.archive.Archive.read`.

        Raises :class:`~lakelog_archive.archive.ArchiveError` also if the store has no UUID.
        """
        return self._existing("nothing of it was archived").read(start, position, length)

    def _existing(self, otherwise: str) -> Archive:
        archive = self._found()
        if archive is None:
            raise ArchiveError(otherwise, path=self.context.path)
        return archive

    def _found(self) -> Archive | None:
        """The archive; ``None`` while the store has no UUID, as then nothing was archived."""
        if self._archive is None:
            identity = read_identity(self.context.files, self.context.path)
            if identity is None:
                return None
            place = place_at(f"{self.settings.url.rstrip('/')}/{identity.uuid}")
            self._archive = Archive(place, self.settings.read_bytes)
        return self._archive


@attrs.define(eq=False)
class Archive:
    """A :class:`lakelog.hooks.SegmentSource` that also stores segments.

    :ivar place: the folder of the store
    :ivar read_bytes: smallest number of bytes to fetch at once
    """

    place: ArchiveFolder
    read_bytes: int = 1 << 20
    _last: tuple[int, int, bytes] = (-1, 0, b"")
    """Start of the segment, position in it, and bytes of the range that was fetched last."""

    def keep(self, path: Path, start: int) -> ManifestEntry:
        """Store the sealed segment ``path``; on return the copy is verified and durable.

        Raises :class:`~lakelog_archive.archive.NotTheSame` if another segment is there,
        :class:`~lakelog_archive.archive.ArchiveError` if the copy differs when it is read back, and
        any error of the folder.
        """
        with path.open("rb") as file:
            name, line = segment_name(start), ManifestEntry(start, *_digest(file))
        known = self.line(start)
        if known is not None and known != line:
            raise NotTheSame(
                f"a segment that starts at {start} was archived already, with sha256 "
                f"{known.sha256} over {known.size} bytes; this one has {line.sha256} over "
                f"{line.size}: it is of another store with the same UUID, or was changed since. "
                "Give this store another fsspec.url",
                path=path,
            )
        if known is None or self._found(name) != (line.size, line.sha256):
            self.place.copy_in(path, _data(name))
            self._prove(path, name, line)
            self.place.write(_manifest(name), to_bytes(line))
        return line

    def starts(self) -> Sequence[int]:
        """Start offsets of the verified segments, in order."""
        names = self.place.names(MANIFEST_DIR)
        return [int(name) for name in names if len(name) == SEGMENT_NAME_DIGITS and name.isdigit()]

    def read(self, start: int, position: int, length: int) -> bytes:
        """Read a range of the segment that starts at the offset ``start``.

        :param position: first byte, from the start of the segment
        :param length: number of bytes
        Raises :class:`~lakelog_archive.archive.ArchiveError` if it cannot be read.
        """
        known, first, data = self._last
        at = position - first
        if start != known or at < 0 or at + length > len(data):
            at, data = 0, self._fetched(start, position, max(length, self.read_bytes))
            self._last = start, position, data
        return data[at : at + length]

    def line(self, start: int) -> ManifestEntry | None:
        """The manifest entry of a segment; ``None`` if it has no verified copy."""
        content = self.place.content(_manifest(segment_name(start)))
        return None if content is None else from_bytes(content)

    def _fetched(self, start: int, position: int, length: int) -> bytes:
        name = segment_name(start)
        try:
            return self.place.read(_data(name), position, length)
        except (OSError, ValueError) as error:
            raise ArchiveError(
                f"{length} bytes from position {position} cannot be read back "
                f"({type(error).__name__}: {error})",
                path=self._shown(name),
            ) from error

    def _prove(self, path: Path, name: str, line: ManifestEntry) -> None:
        """Raise :class:`ArchiveError` unless the copy is as its entry says."""
        found = self._found(name)
        if found != (line.size, line.sha256):
            what = "nothing" if found is None else f"{found[0]} bytes with sha256 {found[1]}"
            raise ArchiveError(
                f"expected {line.size} bytes with sha256 {line.sha256}, read back {what}; {path} "
                "stays where it is",
                path=self._shown(name),
            )

    def _found(self, name: str) -> tuple[int, str] | None:
        try:
            return self.place.sha256(_data(name))
        except FileNotFoundError:
            return None

    def _shown(self, name: str) -> str:
        return f"{self.place.name}/{_data(name)}"


def _data(name: str) -> str:
    return f"{COMMITLOG_DIR}/{name}"


def _manifest(name: str) -> str:
    return f"{MANIFEST_DIR}/{name}"


@attrs.frozen
class ManifestEntry:
    """The entry of one segment.

    :ivar start: offset of its first byte in the log
    :ivar size: length in bytes
    :ivar sha256: checksum of all its bytes, in hex
    """

    start: int
    size: int
    sha256: str


def to_bytes(line: ManifestEntry) -> bytes:
    """Write one line of JSON."""
    return json.dumps({"v": _VERSION, **attrs.asdict(line)}).encode() + b"\n"


def from_bytes(content: bytes) -> ManifestEntry | None:
    """Parse an entry; ``None`` for anything else, such as an incomplete one."""
    try:
        match json.loads(content):
            case {"v": 1, "start": int(start), "size": int(size), "sha256": str(sha256)}:
                return ManifestEntry(start, size, sha256) if _SHA256.fullmatch(sha256) else None
    except ValueError:
        pass
    return None


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


def place_at(url: str) -> ArchiveFolder:
    """The folder at ``url``; raises :class:`~lakelog.errors.SettingsError`."""
    try:
        return ArchiveFolder.of(url)
    except (ImportError, ValueError) as error:
        raise SettingsError(f"{url!r} cannot be used: {error}", key="fsspec.url") from error


def _digest(file: Any) -> tuple[int, str]:
    """Length in bytes and SHA-256 in hex of an open file."""
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


class ArchiveError(StoreError):
    """The content of an archive is not as expected."""


class NotTheSame(ArchiveError):
    """Another segment was archived in the same place."""
