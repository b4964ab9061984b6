"""Who may use the files of a store, and the one way in which they are opened.

What lakelog makes is its user's alone (files 0600, folders 0700), or that of a group too (0660 and
0770), whatever the umask. In a store that has a ``lock`` already, new files and folders have the
rights of that file: nobody who could read the store is shut out by a segment that comes later.

Files are opened only if they are regular ones: a symbolic link in the place of a file is not
followed, and a FIFO, which would be waited at, is refused. Folders may be links.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

import attrs

from lakelog.errors import SettingsError
from lakelog.format.layout import LOCK_FILE

_GUARDED: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_STANDARD_ERROR: Final = 2
_KINDS: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_NO_NAMELESS: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
"""Of a file system, or a kernel, that makes no files without a name."""
_OWNERS_FILE: Final = 0o600
_OWNERS_FOLDER: Final = 0o700


@attrs.frozen
class Access:
    """The rights of new files and folders.

    :ivar others: what group and others may do to a file, as bits of its mode (``0o066`` at most)
    :ivar group_id: the group that they are given; ``None`` is that of the process
    """

    others: int = 0
    group_id: int | None = None

    @property
    def file_mode(self) -> int:
        """The mode of a new file."""
        return _OWNERS_FILE | self.others

    @property
    def directory_mode(self) -> int:
        """The mode of a new folder: who may read a file may also search the folders above.

        Where a group may write, all that is made in the folder gets that group.
        """
        group = stat.S_ISGID if self.group_id is not None and self.others & 0o020 else 0
        return _OWNERS_FOLDER | self.others | (self.others & 0o044) >> 2 | group

    def first_mode(self, parent: Path) -> int:
        """A folder's mode until it has its group: no other group may see anything meanwhile."""
        mode = self.directory_mode & 0o777
        found = os.stat(parent)
        group_id = found.st_gid if found.st_mode & stat.S_ISGID else os.getegid()
        if self.group_id in (None, group_id):
            return mode
        return mode & ~0o070 | (mode & 0o007) << 3

    def give_to(self, fd: int, mode: int) -> None:
        """Give the group and the mode to what was just made; raises ``OSError``."""
        found = os.fstat(fd)
        if self.group_id is not None and found.st_gid != self.group_id:
            os.fchown(fd, -1, self.group_id)
        if found.st_mode & mode != mode:  # a file system without modes gives more, and takes none
            os.fchmod(fd, mode)


PRIVATE: Final = Access()
"""For the process's own user alone."""


def access_of(path: Path, group: str | None = None) -> Access:
    """The rights of what is made in the store directory ``path``.

    :param group: the setting ``group``; without it, new files have the rights of ``lock``, and
        where that is not there yet, they are the user's own

    Raises :class:`~lakelog.errors.SettingsError` for a group that this user cannot give.
    """
    if group is not None:
        return Access(0o060, _given(group))
    try:
        found = os.lstat(path / LOCK_FILE)
    except OSError:
        return PRIVATE
    others = stat.S_IMODE(found.st_mode) & 0o066
    if not stat.S_ISREG(found.st_mode) or not others:
        return PRIVATE
    if _may_give(found.st_gid):
        return Access(others, found.st_gid)
    return Access(others & 0o006 | (others & 0o006) << 3)  # our own group has no more than others


def group_number(name: str) -> int:
    """The number of a group; raises :class:`~lakelog.errors.SettingsError`."""
    import grp

    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise SettingsError(f"there is no group {name!r} on this machine", key="group") from None


def _given(name: str) -> int:
    number = group_number(name)
    if not _may_give(number):
        raise SettingsError(
            f"user {os.geteuid()} is no member of {name!r}, and so cannot give it files; add the "
            "user to it, or name another group",
            key="group",
        )
    return number


def _may_give(group_id: int) -> bool:
    """Whether the system lets this process give its files to the group."""
    return os.geteuid() == 0 or group_id == os.getegid() or group_id in os.getgroups()


def open_regular(path: Path, flags: int, access: Access, *, create: bool) -> int:
    """A descriptor of a regular file; with ``create``, it is made if it is not there.

    Raises ``OSError``; where something else than a regular file is there, it says what that is.
    """
    while True:
        try:
            return _checked(path, _opened(path, flags, 0))
        except FileNotFoundError:
            if not create:
                raise
        try:
            return _made(path, flags, access)
        except FileExistsError:
            continue  # another process was faster


def make_folder(path: Path, access: Access) -> None:
    """Make one folder; nothing happens to one that is there. Raises ``OSError``."""
    try:
        os.mkdir(path, _OWNERS_FOLDER if access == PRIVATE else access.first_mode(path.parent))
    except FileExistsError:
        if path.is_dir():
            return
        raise
    if access == PRIVATE:
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        access.give_to(fd, access.directory_mode)
    finally:
        os.close(fd)


def _made(path: Path, flags: int, access: Access) -> int:
    """A new file; one for others too has its rights before it has its name.

    So nobody is refused who may read it, and a crash leaves no file with fewer rights.
    """
    if access == PRIVATE:
        return _opened(path, flags | os.O_CREAT | os.O_EXCL, _OWNERS_FILE)
    try:
        fd = _opened(path.parent, os.O_RDWR | os.O_TMPFILE, _OWNERS_FILE)
    except OSError as error:
        if error.errno not in _NO_NAMELESS:
            raise
        return _made_at_once(path, flags, access)
    try:
        access.give_to(fd, access.file_mode)
        os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd)  # by linkat, which follows the link
    except BaseException:  # Ctrl-C too: nobody else could close it
        os.close(fd)
        raise
    return fd


def _made_at_once(path: Path, flags: int, access: Access) -> int:
    """The same on a file system without nameless files."""
    fd = _opened(path, flags | os.O_CREAT | os.O_EXCL, _OWNERS_FILE)
    try:
        access.give_to(fd, access.file_mode)
    except BaseException:  # Ctrl-C too: nobody else could close it
        os.close(fd)
        os.unlink(path)
        raise
    return fd


def _opened(path: Path, flags: int, mode: int) -> int:
    """A descriptor that is no standard stream's: what is said there must not get into a store.

    In a process that was started without them, the null device takes their places, for good.
    ``O_NONBLOCK`` changes nothing about regular files.
    """
    try:
        while (fd := os.open(path, flags | _GUARDED, mode)) <= _STANDARD_ERROR:
            os.close(fd)
            flags &= ~os.O_EXCL  # it is there now, and ours
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # for child programs, too
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, or a FIFO or socket
            _refuse(path, os.lstat(path).st_mode)
        raise
    return fd


def _checked(path: Path, fd: int) -> int:
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            _refuse(path, mode)
    except BaseException:  # Ctrl-C too: nobody else could close it
        os.close(fd)
        raise
    return fd


def _refuse(path: Path, mode: int) -> None:
    """Raise the error for what is no regular file; nothing happens where it is one."""
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
        raise OSError(
            errno.EINVAL, f"it is {what}, and a store's files are regular ones; move it away"
        )
