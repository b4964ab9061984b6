"""The delivery time of delayed messages, which their units hold in place of the tags code.

Source: RocketMQ's ``CommitLog.checkMessageAndReturnSize``, and the default of its setting
``messageDelayLevel``.
"""

from __future__ import annotations

from typing import Final

_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000}
DELAYS_MS: Final = tuple(int(text[:-1]) * _UNIT_MS[text[-1]] for text in _LEVELS.split())


def delivery_time_ms(level: str | None, store_time_ms: int) -> int | None:
    """The delivery time of a message with this ``DELAY``, in ms since 1970; ``None`` without one.

    >>> delivery_time_ms("2", 1_000), delivery_time_ms("99", 0), delivery_time_ms("0", 0)
    (6000, 7200000, None)
    """
    try:
        number = int(level or "0")
    except ValueError:
        return None
    return store_time_ms + DELAYS_MS[min(number, len(DELAYS_MS)) - 1] if number > 0 else None
