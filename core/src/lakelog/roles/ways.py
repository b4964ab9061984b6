"""The ways into one store: alone, beside others, and again in a forked child."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import attrs

from lakelog.errors import StoreLocked
from lakelog.ownership import is_served
from lakelog.roles.choosing import Chooser, Mode, no_owner
from lakelog.roles.joining import Joined
from lakelog.roles.ownerparts import owner_parts
from lakelog.roles.parts import Parts
from lakelog.roles.prepared import Prepared
from lakelog.roles.readerparts import reader_parts
from lakelog.settings.catalog import ATTACH
from lakelog.shared.membership import Membership

if TYPE_CHECKING:
    from lakelog.settings.model import AttachSettings


@attrs.define(eq=False)
class Ways:
    """What one opening of a store can become.

    :ivar prepared: its settings are those of all processes of the store, once it has joined
    :ivar may_take_over: whether a store that joined may have the services, if the settings say so
    """

    prepared: Prepared
    may_take_over: bool

    def own(self) -> Parts:
        """Take the directory, and let others join; or have the services that nobody else has.

        Raises :class:`~lakelog.errors.StoreLocked` where somebody has them.
        """
        try:
            return owner_parts(self.prepared, shared=True)
        except StoreLocked:
            parts = self._serving()
            if parts is None:
                raise
            return parts

    def _serving(self) -> Parts | None:
        """Have the services beside others; ``None`` where that cannot be."""
        prepared = self.prepared
        if is_served(prepared.files, prepared.path):
            return None
        try:
            lock = Membership.join(prepared.files, prepared.path, 1.0)
        except StoreLocked:
            return None
        if lock.is_alone:
            lock.leave()
            return None
        joined = Joined(prepared, lock, may_take_over=False)
        self.prepared = joined.prepared
        return joined.serve()

    def attach(self) -> Parts:
        """Append beside those who have the store open.

        Raises :class:`~lakelog.errors.NoOwner` where nobody has.
        """
        prepared, settings = self.prepared, self._settings
        timeout_s = settings.reconnect_timeout_ms / 1000
        lock = Membership.join(prepared.files, prepared.path, timeout_s)
        if lock.is_alone:
            lock.leave()
            raise no_owner(prepared.path)
        joined = Joined(prepared, lock, may_take_over=self.may_take_over and settings.take_over)
        self.prepared = joined.prepared
        try:
            return joined.parts()
        except BaseException:  # Ctrl-C too
            joined.close()
            raise

    def found(self, mode: Literal["auto", "attach"]) -> Parts:
        """Look who owns the store, and do what ``mode`` says."""
        prepared = self.prepared
        patience_ms = self._settings.reconnect_timeout_ms
        chooser = Chooser(prepared.files, prepared.path, patience_ms)
        return chooser.auto(self) if mode == "auto" else chooser.attach(self)

    def in_a_child(self, mode: Mode) -> Callable[[], Parts] | None:
        """How a store that was opened in ``mode`` opens in a forked child; ``None``: not at all.

        A reader does so in any case: it has nothing that is another's, but for locks.
        """
        if mode == "read":
            return lambda: reader_parts(self.prepared)
        if self._settings.on_fork == "refuse":
            return None
        return lambda: self.found("auto" if mode == "auto" else "attach")

    @property
    def _settings(self) -> AttachSettings:
        section: AttachSettings = self.prepared.settings.section(ATTACH)
        return section
