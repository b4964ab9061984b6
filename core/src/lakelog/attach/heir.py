"""What a process gives its producer when it becomes the owner itself."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Protocol, TypeAlias

from lakelog.appender import Appender
from lakelog.consumers.offsets import Offsets


class Heir(Protocol):
    """The new owner, in the producer's own process."""

    @property
    def link(self) -> socket.socket:
        """A connected end of the new owner's hub (:meth:`~lakelog.attach.hub.Hub.in_process`).

        What is open is settled through it, as with any successor.
        """

    @property
    def appender(self) -> Appender:
        """Where puts go from then on."""

    @property
    def offsets(self) -> Offsets:
        """Where commits go from then on."""

    def settled(self) -> None:
        """Nothing of before waits any more; called once, and puts go to ``appender`` by now."""


OnLost: TypeAlias = "Callable[[], Heir | None]"
"""Asked when the owner is gone; ``None`` where somebody else is, or will be, the owner."""
