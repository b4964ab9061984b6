"""The longest stall of puts while a sync is slow (delayed by strace); the goal is at most 5 ms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from tests.bench.durable import stalling
from tests.bench.model import LAKELOG, Column, Contender, Contest

_SECONDS: Final = 3.0
_QUICK_SECONDS: Final = 1.0
_WRITERS: Final = ("file", "mmap", "staged", "direct")


class Stall:
    name = "stall"
    about = f"2 threads put one each ms and wait for no sync; each sync {stalling.DELAY_MS} ms late"
    columns: Sequence[Column] = (
        Column("max_us", "max us", ",.0f"),
        Column("p50_us", "p50 us", ",.0f"),
        Column("p99_us", "p99 us", ",.0f"),
        Column("syncs", "syncs"),
    )
    lower_is_better = True

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        seconds = _QUICK_SECONDS if quick else _SECONDS
        return [_contest(writer, seconds) for writer in _WRITERS]


def _contest(writer: str, seconds: float) -> Contest:
    def one(name: str, note: str, **options: Any) -> Contender:
        return Contender(
            name, note, partial(stalling.spawn, seconds, {**options, "writer": writer})
        )

    return Contest(
        f"writer {writer}",
        [
            one(LAKELOG, "flush=timed", flush="timed"),
            one("none", "flush=none: the floor of this machine", flush="none"),
            one(
                "group-commit",
                "a third thread waits for a sync all the time; the two have wait_store_ok=False",
                flush="group-commit",
                syncer=True,
            ),
        ],
    )
