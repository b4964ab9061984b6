"""Opens one store according to its mode, or again in a forked child."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from lakelog.settings.catalog import ATTACH
from lakelog.store.roles.choosing import Mode
from lakelog.store.roles.ownerparts import owner_parts
from lakelog.store.roles.parts import RoleParts
from lakelog.store.roles.prepared import OpenRequest
from lakelog.store.roles.readerparts import reader_parts
from lakelog_interfaces.errors import StoreReadOnly

NO_WRITING: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
"""Errors of the system for files that this user may not write."""
_EXCLUSIVE: Final = "mode='exclusive' admits no other process"
_NOT_LISTENING: Final = "attach.listen = false admits no other process"
_NOT_INSTALLED: Final = "writing beside other processes needs lakelog-processes (pip install it)"


def open_role(request: OpenRequest, mode: Mode) -> RoleParts:
    """Open the store in ``mode``; a store sharing joins the processes that have it open.

    Raises :class:`~lakelog.errors.StoreReadOnly` if files may not be written; otherwise as
    :func:`lakelog.open`, with ``OSError``.
    """
    if mode == "read":
        return reader_parts(request)
    try:
        if mode == "replica":
            return owner_parts(request, replica=True)
        alone = _EXCLUSIVE if mode == "exclusive" else _why_alone(request)
        if alone is None and request.sharing is not None:
            parts: RoleParts = request.sharing.write(request)
            return parts
        return owner_parts(request, alone=alone)
    except OSError as error:
        if error.errno not in NO_WRITING:
            raise
        raise StoreReadOnly(
            f"{error.strerror or error}; check permissions of it and of the folders above, or "
            "open the store with mode='read'",
            path=error.filename or request.path,
        ) from error


def open_serving(request: OpenRequest) -> RoleParts:
    """Open the store, take its services, and keep them.

    Raises :class:`~lakelog.errors.StoreLocked` if another process keeps them, or has the
    store exclusively.
    """
    alone = _why_alone(request)
    if alone is None and request.sharing is not None:
        parts: RoleParts = request.sharing.serve(request)
        return parts
    return owner_parts(request, alone=alone, replica=None)


def in_a_child(request: OpenRequest, mode: Mode) -> Callable[[], RoleParts] | None:
    """Return a function that reopens the store in a forked child, or ``None``.

    A reader can always be reopened, since it takes no lock of the store.
    """
    refuses = request.settings.section(ATTACH).on_fork == "refuse"
    if mode == "replica" or (mode != "read" and refuses):
        return None
    return lambda: open_role(request, mode)


def _why_alone(request: OpenRequest) -> str | None:
    """Why no other process may write beside this one; ``None`` if others may."""
    if request.sharing is None:
        return _NOT_INSTALLED
    return None if request.settings.section(ATTACH).listen else _NOT_LISTENING
