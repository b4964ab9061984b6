"""The ways into one store: alone, beside others, and again in a forked child."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.errors import StoreLocked
from lakelog.files.shared.membership import Membership
from lakelog.settings.catalog import ATTACH
from lakelog.store.roles.choosing import Chooser, Mode
from lakelog.store.roles.joining import Joined
from lakelog.store.roles.ownerparts import owner_parts
from lakelog.store.roles.parts import Parts
from lakelog.store.roles.prepared import Prepared
from lakelog.store.roles.readerparts import reader_parts

if TYPE_CHECKING:
    from lakelog.settings.model import AttachSettings

_EXCLUSIVE: Final = "mode='exclusive' shares it with nobody"
_NOT_LISTENING: Final = "attach.listen = false shares it with nobody"


@attrs.define(eq=False)
class Ways:
    """What one opening of a store can become.

    :ivar prepared: its settings are those of all processes of the store, once it has joined
    """

    prepared: Prepared

    def own(self) -> Parts:
        """Take the directory, and let others join."""
        alone = None if self._settings.listen else _NOT_LISTENING
        parts = owner_parts(self.prepared, alone=alone)
        if parts.owned is not None and not parts.owned.lock.is_alone:
            Joined.of_first(self.prepared, parts, parts.owned)
        return parts

    def serve(self) -> Parts:
        """Have the services, and keep them; processes that have them give them up.

        Raises :class:`~lakelog.errors.StoreLocked` where one keeps them, or has the store for
        itself.
        """
        alone = None if self._settings.listen else _NOT_LISTENING
        try:
            return owner_parts(self.prepared, alone=alone)
        except StoreLocked:
            joined = self._joined() if alone is None else None
            if joined is None:
                raise
            return joined.serve()

    def _joined(self) -> Joined | None:
        """Beside those who have the store open; ``None`` where nobody has."""
        prepared = self.prepared
        timeout_s = self._settings.reconnect_timeout_ms / 1000
        lock = Membership.join(prepared.files, prepared.path, timeout_s)
        if lock.is_alone:
            lock.leave()
            return None
        joined = Joined.join(prepared, lock)
        self.prepared = joined.prepared
        return joined

    def join(self) -> Parts | None:
        """Append beside those who have the store open; ``None`` where nobody has."""
        joined = self._joined()
        if joined is None:
            return None
        try:
            return joined.parts()
        except BaseException:  # Ctrl-C too
            joined.close()
            raise

    def found(self, mode: Mode) -> Parts:
        """Look who has the store open, and do what ``mode`` says."""
        if mode == "read":
            return reader_parts(self.prepared)
        prepared = self.prepared
        chooser = Chooser(prepared.files, prepared.path, self._settings.reconnect_timeout_ms)
        if mode == "exclusive":
            return chooser.alone(lambda: owner_parts(prepared, alone=_EXCLUSIVE))
        return chooser.alone(self.own) if not self._settings.listen else chooser.write(self)

    def in_a_child(self, mode: Mode) -> Callable[[], Parts] | None:
        """How a store that was opened in ``mode`` opens in a forked child; ``None``: not at all.

        A reader does so in any case: it has nothing that is another's, but for locks.
        """
        if mode != "read" and self._settings.on_fork == "refuse":
            return None
        return lambda: self.found(mode)

    @property
    def _settings(self) -> AttachSettings:
        section: AttachSettings = self.prepared.settings.section(ATTACH)
        return section
