"""The ways into one store: to own it, to attach to its owner, and again in a forked child."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import attrs

from lakelog.roles.agreeing import agreed
from lakelog.roles.choosing import Chooser, Mode, Succession
from lakelog.roles.ownerparts import owner_parts
from lakelog.roles.parts import Link, Parts
from lakelog.roles.prepared import Prepared
from lakelog.roles.readerparts import reader_parts
from lakelog.settings.catalog import ATTACH

if TYPE_CHECKING:
    from lakelog.settings.model import AttachSettings


@attrs.define(eq=False)
class Ways:
    """What one opening of a store can become.

    :ivar prepared: its settings are the owner's, where they differ, once it is attached
    :ivar may_take_over: whether an attached store may become the owner, if the settings say so, too
    """

    prepared: Prepared
    may_take_over: bool

    def own(self) -> Parts:
        """Take the directory, and let others attach."""
        return owner_parts(self.prepared, listen=True)

    def _succeed(self) -> Parts:
        return owner_parts(self.prepared, listen=True, succeeding=True)

    def attach(self) -> Parts:
        """Attach to who listens; raises :class:`~lakelog.errors.NoOwner`."""
        from lakelog.attach.producer import connect  # not needed by who owns

        settings, prepared = self._settings, self.prepared
        succession = Succession(prepared.files, prepared.path, self._succeed)
        takes_over = self.may_take_over and settings.take_over
        link = connect(
            prepared.path,
            timeout_ms=settings.reconnect_timeout_ms,
            on_lost=succession if takes_over else None,
        )
        try:
            parts = self._beside(link)
        except BaseException:
            link.close()
            raise
        parts.tell_store = succession.tell_store
        return parts

    def _beside(self, link: Link) -> Parts:
        prepared = self.prepared
        settings = agreed(prepared.settings, attrs.asdict(link.settings), prepared.path)
        self.prepared = attrs.evolve(prepared, settings=settings)
        return reader_parts(self.prepared, link)

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
