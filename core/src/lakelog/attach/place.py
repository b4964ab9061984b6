"""Where a store's owner listens: the socket ``lakelog/owner.sock`` in the store directory.

The name of a socket must fit into 108 bytes, a store's path need not: both ends go through a
descriptor of the folder. Each packet is one message (``SOCK_SEQPACKET``), so that nothing has to
be put together from pieces. Who holds the store's lock may replace the socket of a dead owner.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from lakelog.errors import AttachRefused, NoOwner, StoreError
from lakelog.layout import OWN_DIR

SOCKET_FILE: Final = "owner.sock"
_NEW_FILE: Final = "owner.sock.new"
_BACKLOG: Final = 128


def listen(path: Path, group_id: int | None) -> socket.socket:
    """The socket of the owner of the store directory ``path``; replaces one that is there.

    :param group_id: the group that may connect beside the owner's own user

    Raises :class:`~lakelog.errors.StoreError`.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with _folder(path) as folder:
            _bind(made, folder, group_id)
    except OSError as error:
        made.close()
        raise StoreError(
            f"no socket for attached producers can be made there ({error}); "
            "set attach.listen to false to do without",
            path=path / OWN_DIR / SOCKET_FILE,
        ) from error
    return made


def _bind(made: socket.socket, folder: int, group_id: int | None) -> None:
    """Ready under its name from the first moment that others can see it."""
    with suppress(FileNotFoundError):
        os.unlink(_NEW_FILE, dir_fd=folder)
    os.fchmod(made.fileno(), 0o600)  # before it has a name: Linux gives the file this mode
    made.bind(f"/proc/self/fd/{folder}/{_NEW_FILE}")
    if group_id is not None:
        os.chown(_NEW_FILE, -1, group_id, dir_fd=folder, follow_symlinks=False)
        os.chmod(_NEW_FILE, 0o660, dir_fd=folder)
    made.listen(_BACKLOG)
    made.setblocking(False)
    os.rename(_NEW_FILE, SOCKET_FILE, src_dir_fd=folder, dst_dir_fd=folder)


def forget(path: Path) -> None:
    """Remove the socket at the end; the next owner replaces one that stays behind anyway."""
    with suppress(OSError), _folder(path) as folder:
        os.unlink(SOCKET_FILE, dir_fd=folder)


def connect(path: Path, timeout_seconds: float) -> socket.socket:
    """A connection to the owner of the store directory ``path``.

    :param timeout_seconds: of this call and of the socket's calls later

    Raises :class:`~lakelog.errors.NoOwner` where nobody listens, and
    :class:`~lakelog.errors.AttachRefused` where this user may not connect.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        made.settimeout(timeout_seconds)
        with _folder(path) as folder:
            made.connect(f"/proc/self/fd/{folder}/{SOCKET_FILE}")
    except PermissionError as error:
        made.close()
        raise AttachRefused(
            "this user may not attach to its owner; see the setting group", path=path
        ) from error
    except OSError as error:
        made.close()
        raise NoOwner(_why(path, error), path=path) from error
    return made


def _why(path: Path, error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError) and is_socket(path):
        return "its owner is gone (a socket is left that nobody listens at)"
    if isinstance(error, FileNotFoundError | NotADirectoryError | ConnectionRefusedError):
        return "no owner lets others attach to it"
    return f"its owner cannot be reached ({error})"


def is_socket(path: Path) -> bool:
    """Whether an owner's socket is there, dead or alive."""
    with suppress(OSError):
        return stat.S_ISSOCK((path / OWN_DIR / SOCKET_FILE).lstat().st_mode)
    return False


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    folder = os.open(path / OWN_DIR, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)
