"""How long to look before sleeping."""

from __future__ import annotations

import time

from lakelog.attach.patience import LEAST_SECONDS, MOST_SECONDS, Patience


def seconds_for_nothing(patience: Patience) -> float:
    begun = time.perf_counter()
    assert not patience.comes(lambda: False)
    return time.perf_counter() - begun


def test_what_is_there_is_seen_at_once() -> None:
    assert Patience().comes(lambda: True)


def test_what_comes_while_one_looks_is_seen() -> None:
    looks = iter([False] * 5 + [True])
    assert Patience().comes(lambda: next(looks))


def test_long_sleeps_make_it_look_less_and_short_ones_longer_again() -> None:
    patience = Patience()
    assert seconds_for_nothing(patience) >= MOST_SECONDS
    for _ in range(20):
        patience.slept(1)
    assert patience._seconds == LEAST_SECONDS
    patience.slept(MOST_SECONDS / 2)
    assert patience._seconds == MOST_SECONDS
    patience.slept(1)
    assert patience._seconds < MOST_SECONDS
    patience.comes(lambda: True)
    assert patience._seconds == MOST_SECONDS
