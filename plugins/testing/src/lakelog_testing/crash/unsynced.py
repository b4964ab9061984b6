"""Real files without syncs, and a directory that holds one image after another."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import attrs

from lakelog.files.filesystem import RealFile, RealFileSystem
from lakelog_testing.crash.images import Image, write_content


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
        if write or create:
            self.touched.add(str(path))
        return UnsyncedFile(path, super().open(path, write=write, create=create).fileno())

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
                with suppress(FileExistsError):
                    os.mkdir(f"{self.path}/{folder}")
        self._folders = set(image.folders)
        for name, content in image.files.items():
            if self._contents.get(name) != content:
                self._contents[name] = content
                write_content(f"{self.path}/{name}", content)


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        try:
            os.unlink(path)
        except IsADirectoryError:
            with suppress(OSError):  # a folder of the image that still has content
                os.rmdir(path)
