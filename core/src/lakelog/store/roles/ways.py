"""Opens one store: alone, beside other processes, or again in a forked child."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.errors import StoreLocked
from lakelog.files.shared.membership import Membership
from lakelog.settings.catalog import ATTACH
from lakelog.store.roles.choosing import Chooser, Mode
from lakelog.store.roles.joining import JoinedLog
from lakelog.store.roles.ownerparts import owner_parts
from lakelog.store.roles.parts import RoleParts
from lakelog.store.roles.prepared import OpenRequest
from lakelog.store.roles.readerparts import reader_parts

if TYPE_CHECKING:
    from lakelog.settings.model import AttachSettings

_EXCLUSIVE: Final = "mode='exclusive' admits no other process"
_NOT_LISTENING: Final = "attach.listen = false admits no other process"


@attrs.define(eq=False)
class RoleOpener:
    """The ways in which one call of open can proceed.

    :ivar prepared: holds the settings of all processes of the store after a join
    """

    prepared: OpenRequest

    def own(self) -> RoleParts:
        """Take over the directory, and let other processes join."""
        alone = None if self._settings.listen else _NOT_LISTENING
        parts = owner_parts(self.prepared, alone=alone)
        if parts.owned is not None and not parts.owned.lock.is_alone:
            JoinedLog.of_first(self.prepared, parts, parts.owned)
        return parts

    def serve(self) -> RoleParts:
        """Take the services and keep them, after requesting them from their present owner.

        Raises :class:`~lakelog.errors.StoreLocked` if another process keeps them, or has the
        store exclusively.
        """
        alone = None if self._settings.listen else _NOT_LISTENING
        try:
            return owner_parts(self.prepared, alone=alone, replica=None)
        except StoreLocked:
            joined = self._joined() if alone is None else None
            if joined is None:
                raise
            return joined.serve()

    def _joined(self) -> JoinedLog | None:
        """Join the processes that have the store open; ``None`` if there are none."""
        prepared = self.prepared
        timeout_s = self._settings.reconnect_timeout_ms / 1000
        lock = Membership.join(prepared.files, prepared.path, timeout_s)
        if lock.is_alone:
            lock.leave()
            return None
        joined = JoinedLog.join(prepared, lock)
        self.prepared = joined.prepared
        return joined

    def join(self) -> RoleParts | None:
        """Build parts to append beside other processes; ``None`` if there are none."""
        joined = self._joined()
        if joined is None:
            return None
        try:
            return joined.parts()
        except BaseException:  # Ctrl-C too
            joined.close()
            raise

    def found(self, mode: Mode) -> RoleParts:
        """Find out which processes have the store open, and open it as ``mode`` says."""
        if mode == "read":
            return reader_parts(self.prepared)
        prepared = self.prepared
        chooser = Chooser(prepared.files, prepared.path, self._settings.reconnect_timeout_ms)
        if mode == "exclusive":
            return chooser.alone(lambda: owner_parts(prepared, alone=_EXCLUSIVE))
        if mode == "replica":
            return chooser.alone(lambda: owner_parts(prepared, replica=True))
        return chooser.alone(self.own) if not self._settings.listen else chooser.write(self)

    def in_a_child(self, mode: Mode) -> Callable[[], RoleParts] | None:
        """Return a function that reopens the store in a forked child, or ``None``.

        A reader can always reopen: apart from locks it shares nothing with other processes.
        """
        if mode == "replica" or (mode != "read" and self._settings.on_fork == "refuse"):
            return None
        return lambda: self.found(mode)

    @property
    def _settings(self) -> AttachSettings:
        section: AttachSettings = self.prepared.settings.section(ATTACH)
        return section
