"""Maintains the dispatcher's pin, by which retention keeps the messages that have not landed yet.

The pin has the smallest position of the tables, so it is never ahead of them. It also protects the
log while no dispatcher runs. It is not written if the store directory is read-only or was never
used by lakelog, as lakelog then deletes no segment. If the pin cannot be written, a warning is
logged and landing continues: the older pin protects more of the log. A dispatcher that fails before
any row has landed removes a pin that it created: otherwise the pin might protect the log for ever.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from lakelog.errors import SettingsError
from lakelog.files.filesystem import FileSystem, RealFileSystem
from lakelog.format.layout import OWN_DIR
from lakelog_lake.tables.position import UNCHECKED, Position
from lakelog_retention import pins

RENEW_MS: Final = 60_000
"""Interval at which an unchanged pin is written again, so that it does not expire."""
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")
_WORD_LENGTH: Final = 40
_log = logging.getLogger("lakelog")


def now_ms() -> int:
    """The current time, in ms since 1970."""
    return time.time_ns() // 1_000_000


@attrs.define
class PinWriter:
    """Writes one pin.

    :ivar path: the store directory
    :ivar name: name of the pin
    :ivar destination: description of the tables for users
    :ivar clock: returns the time in ms since 1970
    """

    path: Path
    name: str
    destination: str
    clock: Callable[[], int] = now_ms
    files: FileSystem = attrs.field(
        default=attrs.Factory(lambda self: RealFileSystem.of_store(self.path), takes_self=True)
    )
    _written: pins.Pin | None = None
    _is_new: bool = False

    def renew(self, position: Position) -> None:
        """Set the pin to the end of ``position``, the smallest one of the tables."""
        pin = self._pin(position)
        if self._has_changed(pin) and self._is_allowed():
            if self._written is None:
                self._is_new = self._there() is None
            try:
                pins.write_pin(self.files, self.path, pin)
            except OSError as error:
                _log.warning("the pin %r cannot be written: %s", self.name, error)
            self._written = pin

    @property
    def may_go(self) -> bool:
        """Whether this object created the pin, and no other process has changed it since."""
        return self._is_new and self._there() == self._written

    def remove(self) -> None:
        """Delete the pin, so that retention no longer waits."""
        try:
            pins.remove_pin(self.files, self.path, self.name)
        except OSError as error:
            _log.warning("the pin %r cannot be removed: %s", self.name, error)

    def _there(self) -> pins.Pin | None:
        there = pins.read_pins(self.files, self.path)
        return next((each for each in there if each.name == self.name), None)

    def _pin(self, position: Position) -> pins.Pin:
        last = position.last
        if last is not None and last.crc == UNCHECKED:
            last = None
        return pins.Pin(self.name, position.end, self.clock(), self.destination, last)

    def _has_changed(self, pin: pins.Pin) -> bool:
        before = self._written
        if before is None or attrs.evolve(before, time_ms=pin.time_ms) != pin:
            return True
        return not 0 <= pin.time_ms - before.time_ms < RENEW_MS

    def _is_allowed(self) -> bool:
        return os.access(self.path / OWN_DIR, os.W_OK | os.X_OK)


def pin_name(given: str | None, destination: str, table: str, store: str) -> str:
    """Return ``given``, or a name derived from the destination that is the same in each run.

    :param destination: ``KIND:PATH``, absolute
    :param store: its identity in the tables

    Raises :class:`~lakelog.errors.SettingsError` for an invalid name.
    """
    if given is not None:
        try:
            return pins.check_name(given)
        except ValueError as error:
            raise SettingsError(str(error), key="--pin") from None
    digest = hashlib.sha256(repr((destination, table, store)).encode()).hexdigest()[:8]
    word = _UNFIT.sub("-", table.rpartition("/")[2]).strip("-")[:_WORD_LENGTH]
    return "-".join(filter(None, (destination.partition(":")[0], word, digest)))
