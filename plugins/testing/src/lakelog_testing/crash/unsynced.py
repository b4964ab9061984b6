"""Real files without syncs, and a directory that holds one image after another."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import attrs

from lakelog.files.access import PRIVATE
from lakelog.files.filesystem import RealFile, RealFileSystem, with_path
from lakelog_testing.crash.images import Image


class UnsyncedFile(RealFile):
    """A file that need not survive a crash."""

    def sync(self) -> None:
        """Do nothing."""


@attrs.frozen(eq=False)
class UnsyncedFileSystem(RealFileSystem):
    """Real files without syncs, for images that are checked once.

    :ivar touched: paths that may have changed
    :ivar moved: folders that were moved, with their content
    """

    touched: set[str] = attrs.field(factory=set)
    moved: set[str] = attrs.field(factory=set)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> UnsyncedFile:
        """See :class:`~lakelog.files.filesystem.FileSystem`."""
        name = str(path)
        flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY)
        if write or create:
            self.touched.add(name)
        try:
            return UnsyncedFile(
                path, os.open(name, flags | (os.O_CREAT if create else 0), PRIVATE.file_mode)
            )
        except OSError as error:
            raise with_path(error, "open", path) from None

    def sync_dir(self, path: Path) -> None:
        """Only check that the directory exists."""
        os.stat(path)

    def make_dir(self, path: Path, *, durable: bool = True) -> None:
        """See :class:`~lakelog.files.filesystem.FileSystem`."""
        if not path.is_dir():
            self.touched.add(str(path))
            super().make_dir(path, durable=durable)

    def rename(self, source: Path, target: Path) -> None:
        """See :class:`~lakelog.files.filesystem.FileSystem`."""
        self._moving(source, target)
        super().rename(source, target)

    def exchange(self, one: Path, other: Path) -> bool:
        """See :class:`~lakelog.files.filesystem.FileSystem`."""
        self._moving(one, other)
        return super().exchange(one, other)

    def unlink(self, path: Path) -> None:
        """See :class:`~lakelog.files.filesystem.FileSystem`."""
        self.touched.add(str(path))
        super().unlink(path)

    def remove_dir(self, path: Path) -> None:
        """See :class:`~lakelog.files.filesystem.FileSystem`."""
        self.touched.add(str(path))
        super().remove_dir(path)

    def _moving(self, *paths: Path) -> None:
        self.touched.update(map(str, paths))
        self.moved.update(str(path) for path in paths if path.is_dir())


class ImageDirectory:
    """A directory that holds one image after another; only differences are written.

    :ivar path: the directory
    :ivar files: the only file system through which its content may be changed
    """

    def __init__(self, path: Path, files: UnsyncedFileSystem) -> None:
        self.path = path
        self.files = files
        self._contents: dict[str, bytes] = {}
        self._folders: set[str] = set()

    def become(self, image: Image) -> None:
        """Replace the content by ``image``."""
        touched, moved = self._within(self.files.touched), self._within(self.files.moved)
        if moved or not self._folders:
            self._begin_anew(image)
        else:
            self._remove(touched, image)
            self._write(image)

    def _within(self, paths: set[str]) -> set[str]:
        """The paths inside this directory, relative to it; clears ``paths``."""
        prefix = f"{self.path}/"
        found = {each[len(prefix) :] for each in paths if each.startswith(prefix)}
        paths.clear()
        return found

    def _begin_anew(self, image: Image) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        image.write_out(self.path)
        self._contents, self._folders = dict(image.files), set(image.folders)

    def _remove(self, touched: set[str], image: Image) -> None:
        """Remove changed files and those not in the image; folders after their content."""
        contents, folders = self._contents, self._folders
        surplus = touched.union(contents.keys() - image.files.keys(), folders - {*image.folders})
        for name in sorted(surplus, key=len, reverse=True):
            contents.pop(name, None)
            folders.discard(name)
            _remove(f"{self.path}/{name}")

    def _write(self, image: Image) -> None:
        for folder in image.folders:
            if folder not in self._folders:
                _make(f"{self.path}/{folder}")
        self._folders = set(image.folders)
        for name, content in image.files.items():
            if self._contents.get(name) != content:
                self._contents[name] = content
                _write(f"{self.path}/{name}", content)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        try:
            os.rmdir(path)
        except OSError:
            return  # a folder of the image that still has content


def _make(path: str) -> None:
    try:
        os.mkdir(path)
    except FileExistsError:
        return


def _write(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE.file_mode)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)
