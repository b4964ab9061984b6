"""Pins that protect the log from deletion until slaves have received it, up to a limit.

Each slave's address has a pin ``ha-ADDRESS``. The pin outlives the connection, so a slave that
reconnects can continue where it was. No pin stays further behind the end of the log than the limit,
so a slave that never reconnects cannot fill the disk. RocketMQ has no such pins: it deletes the
segment, and then sends nothing more to the slave.
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
"""Interval at which a connected slave's pin is renewed, before it expires
(``maintenance.pin_expires_after_ms``)."""


@attrs.frozen
class SlaveHolds:
    """The pins of one store.

    :ivar path: the store directory
    :ivar limit_bytes: largest distance of a pin from the end of the log; 0 means no pins
    """

    files: FileSystem
    path: Path
    limit_bytes: int
    segment_size_bytes: int

    def update(self, acked: Mapping[str, int], end: int) -> None:
        """Move the pins.

        A pin is written only if it moves to another segment, or if it must be renewed.

        :param acked: the largest physical offset that each connected slave reported, by address
        :param end: end offset of the bytes that slaves may have

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
