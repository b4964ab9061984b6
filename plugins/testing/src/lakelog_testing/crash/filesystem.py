"""A file system that tracks the states a crash could leave: see :mod:`lakelog_testing.crash`.

Programs use real files in a real directory, preferably on tmpfs, so that maps, locks and flags are
the kernel's. The durable state is tracked beside them. Stores through a map make no system call;
they are found by comparing files at every call and at every acknowledgement.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

import attrs

from lakelog.files.access import PRIVATE
from lakelog.files.filesystem import File, FileMap, RealFile, RealFileSystem
from lakelog.message import Body
from lakelog_testing.crash.states import ROOT, Contents, Entry, FrozenFile, FrozenNames, Names


@attrs.frozen(eq=False)
class FrozenState:
    """A whole file system at one moment.

    :ivar files: possible contents after a crash of each file that has or had a name, by number
    """

    names: FrozenNames
    files: dict[int, FrozenFile]


@attrs.frozen(eq=False)
class CrashPoint:
    """A moment at which a crash is tried.

    :ivar where: the event
    :ivar before: the witness's result just before the state was taken: guarantees given by then
    :ivar after: its result just after: operations begun by then
    """

    where: str
    before: Any
    after: Any
    state: FrozenState


@attrs.define(eq=False)
class _SimFile(RealFile):
    """A file whose inode is tracked."""

    _system: SimFileSystem
    _contents: Contents

    def write_at(self, position: int, data: Body) -> None:
        self._system.moment("before a write")
        with self._changing():
            super().write_at(position, data)
            self._contents.note_blocks(position, len(data))

    def allocate(self, length: int, position: int = 0) -> None:
        with self._changing():
            super().allocate(length, position)
            self._contents.note_blocks(position, length)

    def truncate(self, length: int) -> None:
        with self._changing():
            super().truncate(length)

    def sync(self) -> None:
        self._system.sync_contents(self.path, self._contents)

    def map(self, length: int, *, writable: bool, position: int = 0) -> FileMap:
        if writable:
            with self._changing():
                self._contents.check_blocks(position, length)
        return super().map(length, writable=writable, position=position)

    def close(self) -> None:
        with self._changing():
            pass
        super().close()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Record what programs stored through maps before, and what the block changes."""
        with self._system.lock:
            self._contents.look()
            yield
            self._contents.look()


class SimFileSystem(RealFileSystem):
    """A ``FileSystem`` over the directory ``root``, whose initial content is durable.

    :param root: files below it are tracked; other paths are passed to the operating system
    :param witness: called at every crash point; returns the guarantees given by then
    :param sync_seconds: minimum duration of a sync; other threads run meanwhile
    :ivar points: the crash points so far
    :ivar syncs: number of file syncs
    :ivar fail_sync_at: number of the sync that fails with ``EIO``
    :ivar fail_sync_in: if given, only files opened in folders of these names count, without the
        first sync of each, made by its creator
    :ivar has_failed: whether that sync has failed
    :ivar trespasses: ranges mapped for writing, or written through a map, without blocks
    :ivar recording: whether crash points are taken
    :ivar moment: called before writes, within syncs and after them, without a lock, to run other
        threads
    """

    def __init__(
        self,
        root: Path,
        witness: Callable[[], Any] = lambda: None,
        sync_seconds: float = 0.0,
        *,
        after: FrozenState | None = None,
    ) -> None:
        self.root = root.absolute()
        self.witness = witness
        self.sync_seconds = sync_seconds
        self.points: list[CrashPoint] = []
        self.syncs = 0
        self.fail_sync_at: int | None = None
        self.fail_sync_in: tuple[str, ...] = ()
        self.has_failed = False
        self.trespasses: list[str] = []
        self.recording = True
        self.moment: Callable[[str], None] = lambda _where: None
        self.lock = RLock()
        self._names = Names()
        self._contents: dict[int, Contents] = {}
        self._unlinked: dict[int, FrozenFile] = {}
        self._next = ROOT + 1
        if after is None:
            self._adopt(self.root, ROOT)
        else:
            self._resume(after)

    # --- the initial content ---

    def _adopt(self, directory: Path, number: int) -> None:
        with os.scandir(directory) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                is_dir = entry.is_dir(follow_symlinks=False)
                new = self._number()
                self._names.add_durable(number, entry.name, new, is_dir=is_dir)
                if is_dir:
                    self._adopt(Path(entry.path), new)
                else:
                    fd = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC)
                    content = os.pread(fd, os.fstat(fd).st_size, 0)
                    self._contents[new] = Contents(fd, content, trespass=self._trespass)

    def _resume(self, after: FrozenState) -> None:
        """Resume after the process died, but not the machine; ``root`` has the volatile state."""
        self._names.resume(after.names)
        self._next = 1 + max([ROOT, *after.files, *after.names.durable, *self._names.directories])
        self._open_resumed(self.root, ROOT, after)
        self._unlinked = {
            number: file for number, file in after.files.items() if number not in self._contents
        }

    def _open_resumed(self, directory: Path, number: int, after: FrozenState) -> None:
        for name, child in self._names.directories[number].items():
            if child in after.files:
                fd = os.open(directory / name, os.O_RDONLY | os.O_CLOEXEC)
                self._contents[child] = Contents.resumed(fd, after.files[child], self._trespass)
            else:
                self._open_resumed(directory / name, child, after)

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    # --- crash points ---

    def point(self, where: str, *, always: bool = False) -> None:
        """Take a crash point; with ``always``, even while recording is off."""
        if not (self.recording or always):
            return
        before = self.witness()
        with self.lock:
            state = self.freeze()
            self.points.append(CrashPoint(where, before, self.witness(), state))

    def freeze(self) -> FrozenState:
        """The states that a crash could leave now."""
        with self.lock:
            self._forget_unreachable()
            frozen = {number: each.frozen() for number, each in self._contents.items()}
            return FrozenState(self._names.frozen(), {**self._unlinked, **frozen})

    def _forget_unreachable(self) -> None:
        reachable = self._names.reachable()
        for number in [each for each in self._contents if each not in reachable]:
            self._contents.pop(number).close()

    def sync_contents(self, path: Path, contents: Contents) -> None:
        """Sync a file; the lock is free during the sync."""
        self.point(f"before sync of {self._name(path)}")
        with self.lock:
            self.syncs += self._counts(path, contents)
            if self.syncs == self.fail_sync_at and not self.has_failed:
                self.has_failed = True
                contents.fail_sync()
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            durable = contents.begin_sync()  # the real file need not be synced
        if self.sync_seconds:
            time.sleep(self.sync_seconds)
        self.moment("within a sync")
        with self.lock:
            contents.end_sync(durable)
        self.point(f"after sync of {self._name(path)}")
        self.moment("behind a sync")

    def _counts(self, path: Path, contents: Contents) -> bool:
        known = self.fail_sync_in
        return not known or (contents.was_synced and path.parent.name in known)

    def _trespass(self, fd: int, pages: str) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        self.trespasses.append(f"{self._name(path)}: {pages}")

    def leaks(self) -> list[str]:
        """Names that were created or removed without this file system."""
        real = {
            os.path.relpath(os.path.join(folder, name), self.root)
            for folder, folders, files in os.walk(self.root)
            for name in folders + files
        }
        known = set(self._walk(ROOT, ""))
        return sorted(real ^ known)

    def _walk(self, number: int, prefix: str) -> list[str]:
        found = []
        for name, child in self._names.directories.get(number, {}).items():
            found.append(prefix + name)
            if child in self._names.directories:
                found += self._walk(child, f"{prefix}{name}/")
        return found

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def close(self) -> None:
        """Close all descriptors."""
        self.recording = False
        for contents in self._contents.values():
            contents.close()
        self._contents.clear()

    # --- the FileSystem interface ---

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        """See :class:`~lakelog.files.filesystem.FileSystem`."""
        with self.lock:
            entry = self._entry(path)
            file = super().open(path, write=write, create=create)
            if entry is None:
                return file
            return _SimFile(path, file, self, self._contents_of(entry, path))

    def _contents_of(self, entry: Entry, path: Path) -> Contents:
        directory, name = entry
        number = self._names.directories[directory].get(name)
        if number is None:
            number = self._number()
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._contents[number] = Contents(fd, trespass=self._trespass)
            self._names.change("create", (entry, number))
        return self._contents[number]

    def make_dir(self, path: Path, *, durable: bool = True) -> None:
        """See :class:`~lakelog.files.filesystem.FileSystem`."""
        with self.lock:
            if path.is_dir():
                return
            self.make_dir(path.parent, durable=durable)
            path.mkdir(mode=PRIVATE.directory_mode)
            entry = self._entry(path)
            if entry is not None:
                self._names.make_dir(entry, self._number())
        if durable:
            self.sync_dir(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        """See :class:`~lakelog.files.filesystem.FileSystem`."""
        with self.lock:
            one, other = self._known(source), self._known(target)
            number = self._names.directories[one[0]].get(one[1])
            super().rename(source, target)
            self._names.change("rename", (one, None), (other, number))

    def exchange(self, one: Path, other: Path) -> bool:
        """See :class:`~lakelog.files.filesystem.FileSystem`."""
        with self.lock:
            first, second = self._known(one), self._known(other)
            numbers = [self._names.directories[each[0]].get(each[1]) for each in (first, second)]
            if not super().exchange(one, other):
                return False
            self._names.change("exchange", (first, numbers[1]), (second, numbers[0]))
            return True

    def unlink(self, path: Path) -> None:
        """See :class:`~lakelog.files.filesystem.FileSystem`."""
        with self.lock:
            super().unlink(path)
            self._names.change("unlink", (self._known(path), None))

    def remove_dir(self, path: Path) -> None:
        """See :class:`~lakelog.files.filesystem.FileSystem`."""
        with self.lock:
            super().remove_dir(path)
            self._names.change("rmdir", (self._known(path), None))

    def sync_dir(self, path: Path) -> None:
        """See :class:`~lakelog.files.filesystem.FileSystem`."""
        where = self._name(path) if path.is_relative_to(self.root) else ""
        self.point(f"before sync of folder {where}")
        with self.lock:
            if not path.is_dir():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            number = self._find(path)
            if number is not None:
                self._names.sync(number)
        self.point(f"after sync of folder {where}")

    # --- paths ---

    def _find(self, path: Path) -> int | None:
        """The number of the directory ``path``; ``None`` if it is not below the root."""
        if not path.is_relative_to(self.root):
            return None
        number = ROOT
        for name in path.relative_to(self.root).parts:
            found = self._names.directories.get(number, {}).get(name)
            if found is None:
                return None
            number = found
        return number

    def _entry(self, path: Path) -> Entry | None:
        number = self._find(path.parent)
        return None if number is None else (number, path.name)

    def _known(self, path: Path) -> Entry:
        entry = self._entry(path)
        if entry is None:
            raise ValueError(f"{path} is not below {self.root}, the simulated directory")
        return entry
