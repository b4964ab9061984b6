"""The access rights of a store's files, and the only functions that open them.

New files and folders belong to the user (0600, 0700) or also to a group (0660, 0770), whatever the
umask. If the store has a ``lock`` file, new ones get the rights of that file, so that later
segments stay readable for the same users.

Only regular files are opened. Symbolic links are not followed, and a FIFO, which would block, is
refused. Folders may be links.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from lakelog.errors import SettingsError
from lakelog.format.layout import CHECKPOINT_FILE, LOCK_FILE

_GUARDED: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_STANDARD_ERROR: Final = 2
_KINDS: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_NO_NAMELESS: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
"""Errors of file systems or kernels without unnamed files."""
_OWNERS_FILE: Final = 0o600
_OWNERS_FOLDER: Final = 0o700


class Access(NamedTuple):
    """The rights of new files and folders.

    :ivar others: rights of group and others on a file, as bits of its mode (``0o066`` at most)
    :ivar group_id: group of new files and folders; ``None`` is that of the process
    """

    others: int = 0
    group_id: int | None = None

    @property
    def file_mode(self) -> int:
        """The mode of a new file."""
        return _OWNERS_FILE | self.others

    @property
    def directory_mode(self) -> int:
        """The mode of a new folder: each reader of a file may also search the folder.

        If a group may write, everything created in the folder gets that group.
        """
        group = stat.S_ISGID if self.group_id is not None and self.others & 0o020 else 0
        return _OWNERS_FOLDER | self.others | (self.others & 0o044) >> 2 | group

    def first_mode(self, parent: Path) -> int:
        """The mode of a folder until its group is set: no other group gets access meanwhile."""
        mode = self.directory_mode & 0o777
        found = os.stat(parent)
        group_id = found.st_gid if found.st_mode & stat.S_ISGID else os.getegid()
        if self.group_id in (None, group_id):
            return mode
        return mode & ~0o070 | (mode & 0o007) << 3

    def give_to(self, fd: int, mode: int) -> None:
        """Set group and mode of a new file or folder; raises ``OSError``."""
        found = os.fstat(fd)
        if self.group_id is not None and found.st_gid != self.group_id:
            os.fchown(fd, -1, self.group_id)
        if found.st_mode & mode != mode:  # file systems without modes show more, and refuse changes
            os.fchmod(fd, mode)


PRIVATE: Final = Access()
"""Access for the process's own user only."""


def access_of(path: Path, group: str | None = None) -> Access:
    """The rights of new files in the store directory ``path``.

    :param group: the setting ``group``; without it, new files get the rights of ``lock``, or of
        ``checkpoint`` if that was removed, and are private if there is neither

    Raises :class:`~lakelog.errors.SettingsError` for a group that this user cannot assign.
    """
    if group is not None:
        return Access(0o060, _given(group))
    try:
        name = LOCK_FILE if os.path.lexists(path / LOCK_FILE) else CHECKPOINT_FILE
        found = os.lstat(path / name)
    except OSError:
        return PRIVATE
    others = stat.S_IMODE(found.st_mode) & 0o066
    if not stat.S_ISREG(found.st_mode) or not others:
        return PRIVATE
    if _may_give(found.st_gid):
        return Access(others, found.st_gid)
    return Access(others & 0o006 | (others & 0o006) << 3)  # the own group gets no more than others


def _given(name: str) -> int:
    """The number of a group that this process may give files to."""
    import grp

    try:
        number = grp.getgrnam(name).gr_gid
    except KeyError:
        raise SettingsError(f"there is no group {name!r} on this machine", key="group") from None
    if not _may_give(number):
        raise SettingsError(
            f"user {os.geteuid()} is no member of {name!r}, and so cannot give files to this "
            "group; add the user to the group, or set another one",
            key="group",
        )
    return number


def _may_give(group_id: int) -> bool:
    """Whether this process may assign its files to the group."""
    return os.geteuid() == 0 or group_id == os.getegid() or group_id in os.getgroups()


class Descriptor:
    """The number of an open descriptor; none before it is opened, and once it is closed.

    A signal handler may raise behind any call, before the caller has stored its result. So compiled
    code stores the number here, and takes it from here to close it.

    :param used: contains this object from now on until :meth:`close`
    """

    __slots__ = ("_numbers", "_used")

    def __init__(self, used: set[Any] | None = None) -> None:
        self._numbers = list[int]()
        self._used = used
        if used is not None:
            used.add(self)

    @property
    def number(self) -> int:
        """The number."""
        return self._numbers[0]

    def open(self, path: Path | str, flags: int, mode: int = 0) -> None:
        """``open``. Raises ``OSError``."""
        self._numbers.extend(map(os.open, (path,), (flags,), (mode,)))

    def close_number(self) -> None:
        """``close``; a second call does nothing, since another file may have the number by then."""
        numbers = self._numbers
        if numbers:
            with suppress(IndexError):  # another thread closes it
                deque(map(os.close, map(numbers.pop, (0,))), maxlen=0)

    def close(self) -> None:
        """As :meth:`close_number`, for good."""
        try:
            self.close_number()
        finally:
            if self._used is not None and not self._numbers:  # else it is closed with the store
                self._used.discard(self)


def open_regular(
    descriptor: Descriptor, path: Path, flags: int, access: Access, *, create: bool
) -> None:
    """Open a regular file; with ``create``, create it if missing. The caller closes ``descriptor``.

    Raises ``OSError``, which names the type of a file that is not a regular one.
    """
    while True:
        try:
            _open(descriptor, path, flags, 0)
            mode = os.fstat(descriptor.number).st_mode
            if not stat.S_ISREG(mode):
                _refuse(path, mode)
            return
        except FileNotFoundError:
            if not create:
                raise
        try:
            _make(descriptor, path, flags, access)
            return
        except FileExistsError:
            continue  # another process was faster


def open_link(descriptor: Descriptor, link: str, flags: int) -> None:
    """Open the file of another open descriptor, by its link in ``/proc``. Raises ``OSError``."""
    _open(descriptor, Path(link), flags, 0, _GUARDED & ~os.O_NOFOLLOW)


def make_folder(path: Path, access: Access, used: set[Any] | None = None) -> None:
    """Create one folder unless it exists; ``used`` is as of ``Descriptor``. Raises ``OSError``."""
    try:
        os.mkdir(path, _OWNERS_FOLDER if access == PRIVATE else access.first_mode(path.parent))
    except FileExistsError:
        if path.is_dir():
            return
        if path.is_symlink():
            raise OSError(
                errno.ENOENT,
                f"it is a symbolic link to {os.readlink(path)!r}, which does not exist; make that "
                "folder, or remove the link",
            ) from None
        raise
    if access == PRIVATE:
        return
    descriptor = Descriptor(used)
    try:
        descriptor.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        access.give_to(descriptor.number, access.directory_mode)
    finally:
        descriptor.close()


def _make(descriptor: Descriptor, path: Path, flags: int, access: Access) -> None:
    """Create a file; if others may use it, it gets its rights before its name.

    So no permitted user is refused meanwhile, and a crash leaves no file with fewer rights.
    """
    if access == PRIVATE:
        _open(descriptor, path, flags | os.O_CREAT | os.O_EXCL, _OWNERS_FILE)
        return
    try:
        _open(descriptor, path.parent, os.O_RDWR | os.O_TMPFILE, _OWNERS_FILE)
    except OSError as error:
        if error.errno not in _NO_NAMELESS:
            raise
        _make_at_once(descriptor, path, flags, access)
        return
    try:
        access.give_to(descriptor.number, access.file_mode)
        # by linkat, which follows the link
        os.link(f"/proc/self/fd/{descriptor.number}", path, src_dir_fd=descriptor.number)
    except FileExistsError:
        descriptor.close_number()
        raise


def _make_at_once(descriptor: Descriptor, path: Path, flags: int, access: Access) -> None:
    """As ``_make``, on a file system without unnamed files."""
    _open(descriptor, path, flags | os.O_CREAT | os.O_EXCL, _OWNERS_FILE)
    try:
        access.give_to(descriptor.number, access.file_mode)
    except BaseException:  # Ctrl-C too
        os.unlink(path)
        raise


def _open(
    descriptor: Descriptor, path: Path, flags: int, mode: int, guards: int = _GUARDED
) -> None:
    """Open a file, never under the number of a standard stream, whose output could damage it.

    If the process was started without standard streams, the null device takes their numbers.
    ``O_NONBLOCK`` has no effect on regular files.
    """
    try:
        descriptor.open(path, flags | guards, mode)
        while descriptor.number <= _STANDARD_ERROR:
            descriptor.close_number()
            flags &= ~os.O_EXCL  # the file exists now, created here
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # for child programs, too
            descriptor.open(path, flags | guards, mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, or a FIFO or socket
            _refuse(path, os.lstat(path).st_mode)
        raise


def _refuse(path: Path, mode: int) -> None:
    """Raise the error for a file that is not regular; do nothing for a regular one."""
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFLNK:
        raise OSError(
            errno.ELOOP,
            f"it is a symbolic link to {os.readlink(path)!r}, and a store's files are never links; "
            "put the file itself there (a folder may be a link), or move the link away",
        )
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if kind != stat.S_IFREG:
        what = _KINDS.get(kind, "something else")
        raise OSError(errno.EINVAL, f"it is {what}, but must be a regular file; move it away")
