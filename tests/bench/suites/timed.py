"""The cost of timed flushes for puts: `timed` compared with `none`; the goal is at most 10 %."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.bench.durable.work import COLUMNS, Work
from tests.bench.model import LAKELOG, Column, Contest
from tests.bench.suites.durable import contender

_SECONDS: Final = 2.0
_QUICK_SECONDS: Final = 0.3


class Timed:
    name = "timed"
    about = "1 KiB messages put by one thread, flush=timed beside flush=none"
    columns: Sequence[Column] = COLUMNS
    lower_is_better = False

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        seconds = _QUICK_SECONDS if quick else _SECONDS
        return [
            _contest("put", Work(seconds)),
            _contest("put_batch of 1,024", Work(seconds, batch_size=1024)),
            _contest("columns of 1,024", Work(seconds, batch_size=1024, columns=True)),
        ]


def _contest(title: str, work: Work) -> Contest:
    return Contest(
        title,
        [
            contender(LAKELOG, "lakelog", work, "flush=timed, its defaults", flush="timed"),
            contender("none", "lakelog", work, "flush=none", flush="none"),
        ],
    )
