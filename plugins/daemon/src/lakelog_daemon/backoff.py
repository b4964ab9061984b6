"""Delays before a service is restarted: doubled after each end, with random variation.

The variation keeps services that ended together, for example on a full disk, from restarting
together.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import attrs

from lakelog.settings.model import ServeSettings

SPREAD: Final = 0.2
_MOST_DOUBLINGS: Final = 30


@attrs.define
class Backoff:
    """The restart delays of one service.

    :ivar chance: returns a random number from 0 to 1
    """

    settings: ServeSettings
    chance: Callable[[], float] = random.random
    _ends: int = 0

    def after(self, ran_seconds: float) -> float:
        """The delay in seconds before the restart of a service that ran for ``ran_seconds``."""
        if ran_seconds * 1000 >= self.settings.restart_settled_ms:
            self._ends = 0
        doubled = self.settings.restart_first_ms << min(self._ends, _MOST_DOUBLINGS)
        self._ends += 1
        pause_ms = min(doubled, self.settings.restart_longest_ms)
        return pause_ms / 1000 * (1 - SPREAD + 2 * SPREAD * self.chance())
