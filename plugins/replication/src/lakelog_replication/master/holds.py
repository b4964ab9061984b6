"""Pins that keep the log for slaves from deletion, up to a limit.

Each slave's address has a pin ``ha-ADDRESS``. It stays when the slave has gone, so that the slave
finds its place when it comes back; but no pin stays further behind than the limit, so that a slave
that never comes back does not fill the disk. RocketMQ deletes, and then sends nothing any more.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from lakelog.files.filesystem import FileSystem
from lakelog_retention.pins import Pin, read_pins, write_pin

_PREFIX: Final = "ha-"
_RENEW_MS: Final = 60_000
"""A connected slave's pin is renewed this often, for ``maintenance.pin_expires_after_ms``."""


@attrs.frozen
class SlaveHolds:
    """The pins of one store.

    :ivar limit_bytes: how far behind the end of the log a pin may stay; 0 makes none
    """

    files: FileSystem
    path: Path
    limit_bytes: int
    segment_size_bytes: int

    def update(self, acked: Mapping[str, int], end: int) -> None:
        """Move the pins.

        A pin is written only if that frees a segment, or if it must be renewed.

        :param acked: the offset that each connected slave has, by its address
        :param end: end of the log

        Raises ``OSError``.
        """
        if not self.limit_bytes:
            return
        now_ms, least = time.time_ns() // 1_000_000, max(0, end - self.limit_bytes)
        found = {each.name: each for each in read_pins(self.files, self.path)}
        wanted = {_name(address): max(least, offset) for address, offset in acked.items()}
        for name, pin in found.items():
            if name.startswith(_PREFIX) and name not in wanted and pin.position < least:
                wanted[name] = least
        for name, position in wanted.items():
            former = found.get(name)
            if former is None or self._matters(former, position, now_ms):
                write_pin(self.files, self.path, Pin(name, position, now_ms, "rocketmq-ha slave"))

    def _matters(self, former: Pin, position: int, now_ms: int) -> bool:
        size = self.segment_size_bytes
        moved = former.position // size != position // size
        return moved or former.problem is not None or now_ms - former.time_ms >= _RENEW_MS


def _name(address: str) -> str:
    return _PREFIX + address.replace(":", "-").replace("%", "-")
