"""Opens one store: alone, beside other processes, or again in a forked child.

Only locks decide between the first two. The loser of a race joins the winner after the winner's
recovery.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.errors import AttachRefused, StoreLocked, StoreReadOnly
from lakelog.files.shared.ownership import is_owned
from lakelog.interfaces import SharedLog
from lakelog.settings.catalog import ATTACH
from lakelog.store.roles.choosing import Mode
from lakelog.store.roles.ownerparts import owner_parts
from lakelog.store.roles.parts import RoleParts
from lakelog.store.roles.prepared import OpenRequest
from lakelog.store.roles.readerparts import reader_parts

if TYPE_CHECKING:
    from lakelog.settings.model import AttachSettings

_EXCLUSIVE: Final = "mode='exclusive' admits no other process"
_NOT_LISTENING: Final = "attach.listen = false admits no other process"
_NOT_INSTALLED: Final = "writing beside other processes needs lakelog-processes (pip install it)"
_LOOK_S: Final = 0.01
_NO_WRITING: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


@attrs.define(eq=False)
class RoleOpener:
    """The ways in which one call of open can proceed.

    :ivar prepared: holds the settings of all processes of the store after a join
    """

    prepared: OpenRequest

    def found(self, mode: Mode) -> RoleParts:
        """Find out which processes have the store open, and open it as ``mode`` says."""
        if mode == "read":
            return reader_parts(self.prepared)
        try:
            if mode == "exclusive":
                return owner_parts(self.prepared, alone=_EXCLUSIVE)
            if mode == "replica":
                return owner_parts(self.prepared, replica=True)
            return self._write() if self._alone is None else self._own()
        except OSError as error:
            if error.errno not in _NO_WRITING:
                raise
            raise StoreReadOnly(
                f"{error.strerror or error}; check permissions of it and of the folders above, or "
                "open the store with mode='read'",
                path=error.filename or self.prepared.path,
            ) from error

    def serve(self) -> RoleParts:
        """Take the services and keep them, after requesting them from their present owner.

        Raises :class:`~lakelog.errors.StoreLocked` if another process keeps them, or has the
        store exclusively.
        """
        alone = self._alone
        try:
            return owner_parts(self.prepared, alone=alone, replica=None)
        except StoreLocked:
            joined = self._joined() if alone is None else None
            if joined is None:
                raise
            return joined.serve()

    def in_a_child(self, mode: Mode) -> Callable[[], RoleParts] | None:
        """Return a function that reopens the store in a forked child, or ``None``.

        A reader can always reopen: apart from locks it shares nothing with other processes.
        """
        if mode == "replica" or (mode != "read" and self._settings.on_fork == "refuse"):
            return None
        return lambda: self.found(mode)

    @property
    def _alone(self) -> str | None:
        """Why this process admits no other; ``None`` if it does."""
        if self.prepared.sharing is None:
            return _NOT_INSTALLED
        return None if self._settings.listen else _NOT_LISTENING

    @property
    def _settings(self) -> AttachSettings:
        section: AttachSettings = self.prepared.settings.section(ATTACH)
        return section

    def _write(self) -> RoleParts:
        """Join the processes that have the store open, or take it over if there are none.

        While other processes open or close the store, this tries again.
        """
        prepared = self.prepared
        end = time.monotonic() + self._settings.reconnect_timeout_ms / 1000
        while True:
            last = time.monotonic() >= end
            found = self._join() if is_owned(prepared.files, prepared.path) else None
            if found is not None:
                return found
            try:  # no process has it open, or the last one has just left
                return self._own()
            except StoreLocked:  # another process was faster
                if last:
                    raise
            time.sleep(_LOOK_S)

    def _own(self) -> RoleParts:
        """Take over the directory, and let other processes join."""
        parts = owner_parts(self.prepared, alone=self._alone)
        if parts.answering is not None and self.prepared.sharing is not None:
            self.prepared.sharing.admit(self.prepared, parts)
        return parts

    def _join(self) -> RoleParts | None:
        """Build parts to append beside other processes; ``None`` if there are none."""
        try:
            joined = self._joined()
            if joined is None:
                return None
            try:
                return joined.parts()
            except BaseException:  # Ctrl-C too
                joined.close()
                raise
        except OSError as error:
            if error.errno not in _NO_WRITING:
                raise
            raise AttachRefused(
                "its files belong to another user; open it as that user, or give the store a group "
                "with the setting group",
                path=self.prepared.path,
            ) from error

    def _joined(self) -> SharedLog | None:
        """Join the processes that have the store open; ``None`` if there are none."""
        sharing = self.prepared.sharing
        joined = None if sharing is None else sharing.join(self.prepared)
        if joined is not None:
            self.prepared = joined.prepared
        return joined
