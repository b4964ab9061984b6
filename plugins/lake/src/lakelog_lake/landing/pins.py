"""The dispatcher's pin, by which retention keeps the messages that have not landed yet.

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
from lakelog.maintenance import pins
from lakelog_lake.sinks.locations import TableLocation
from lakelog_lake.tables.position import UNCHECKED, Position

RENEW_MS: Final = 60_000
"""Interval at which an unchanged pin is written again, so that it does not expire."""
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")
_WORD_LENGTH: Final = 40
_log = logging.getLogger("lakelog")


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
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    files: FileSystem = attrs.field(
        default=attrs.Factory(lambda self: RealFileSystem.of_store(self.path), takes_self=True)
    )
    _written: pins.Pin | None = None
    _is_new: bool = False

    def renew(self, position: Position) -> None:
        """Set the pin to the end of ``position``, the smallest one of the tables."""
        last = position.last
        if last is not None and last.crc == UNCHECKED:
            last = None
        pin = pins.Pin(self.name, position.end, self.clock(), self.destination, last)
        if self._has_changed(pin) and os.access(self.path / OWN_DIR, os.W_OK | os.X_OK):
            if self._written is None:
                self._is_new = self._there() is None
            try:
                pins.write_pin(self.files, self.path, pin)
            except OSError as error:
                _log.warning("the pin %r cannot be written: %s", self.name, error)
            self._written = pin

    def _has_changed(self, pin: pins.Pin) -> bool:
        before = self._written
        if before is None or attrs.evolve(before, time_ms=pin.time_ms) != pin:
            return True
        return not 0 <= pin.time_ms - before.time_ms < RENEW_MS

    def _there(self) -> pins.Pin | None:
        there = pins.read_pins(self.files, self.path)
        return next((each for each in there if each.name == self.name), None)

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


def pin_for(
    path: Path, store: str, place: TableLocation, table: str, given: str | None = None
) -> PinWriter:
    """The pin of a dispatcher that lands the store in ``path``.

    :param store: the identity of the store in the tables
    :param table: the name of the table, or a template
    :param given: the pin's name; ``None`` derives one that is the same in each run

    Raises :class:`~lakelog.errors.SettingsError` for an invalid name.
    """
    to = place.text
    shown = to if place.names_are_paths else f"{to} {table}"
    if given is not None:
        try:
            return PinWriter(path, pins.check_name(given), shown)
        except ValueError as error:
            raise SettingsError(str(error), key="--pin") from None
    digest = hashlib.sha256(repr((to, table, store)).encode()).hexdigest()[:8]
    word = _UNFIT.sub("-", table.rpartition("/")[2]).strip("-")[:_WORD_LENGTH]
    return PinWriter(path, "-".join(filter(None, (to.partition(":")[0], word, digest))), shown)
