"""How long a service that ended is left alone: twice as long each time, and by chance a little off.

Chance keeps services that fell together, such as over a full disk, from coming back together.
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
    """The pauses of one service.

    :ivar chance: a number from 0 to 1, each time another
    """

    settings: ServeSettings
    chance: Callable[[], float] = random.random
    _ends: int = 0

    def after(self, ran_seconds: float) -> float:
        """How many seconds to wait now that the service has ended after so many."""
        if ran_seconds * 1000 >= self.settings.restart_settled_ms:
            self._ends = 0
        doubled = self.settings.restart_first_ms << min(self._ends, _MOST_DOUBLINGS)
        self._ends += 1
        pause_ms = min(doubled, self.settings.restart_longest_ms)
        return pause_ms / 1000 * (1 - SPREAD + 2 * SPREAD * self.chance())
