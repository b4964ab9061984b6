"""The time to open a filled store, after a kill or a close, and to verify it.

All contenders use copies of the same directory, in the page cache. Only the last column includes
the start of interpreter or JVM.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Final

from tests.bench.durable import starting
from tests.bench.model import LAKELOG, Column, Contender, Contest
from tests.bench.peers import java

GIB_VARIABLE: Final = "BENCH_GIB"
_GIB: Final = 4.0
_QUICK_GIB: Final = 0.25


def filled_bytes(*, quick: bool) -> int:
    """Return the size of the stores: 4 GiB, or the value of BENCH_GIB."""
    gib = float(os.environ.get(GIB_VARIABLE, _QUICK_GIB if quick else _GIB))
    return int(gib * (1 << 30))


class Recovery:
    name = "recovery"
    about = "a store of 1 KiB messages opened until it takes a put; the aim is half of Java's time"
    columns: Sequence[Column] = (
        Column("ms", "usable ms"),
        Column("open_ms", "open/load ms"),
        Column("dispatched_ms", "dispatched ms"),
        Column("process_ms", "process ms"),
    )
    lower_is_better = True

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        size = filled_bytes(quick=quick)
        return [_contest(size, killed=killed) for killed in (True, False)]


def _contest(size: int, *, killed: bool) -> Contest:
    return Contest(
        f"{size / (1 << 30):g} GiB, {'killed' if killed else 'closed'}",
        [
            Contender(
                LAKELOG,
                "lakelog.open, then a put; written by lakelog with flush=timed",
                partial(starting.ours, size, killed),
            ),
            Contender(
                java.NAME,
                "DefaultMessageStore 5.3.3: load() is recovery, usable is behind start()",
                partial(starting.theirs, size, killed),
            ),
        ],
    )


class Verify:
    name = "verify"
    about = "a closed store of 1 KiB messages checked; the interpreter's start is counted"
    columns: Sequence[Column] = (Column("gb_s", "GB/s", ",.2f"), Column("seconds", "s", ",.2f"))
    lower_is_better = False

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        size = filled_bytes(quick=quick)
        return [
            Contest(
                f"{size / (1 << 30):g} GiB",
                [
                    Contender(LAKELOG, "lakelog verify", partial(starting.verified, size, False)),
                    Contender(
                        "everything",
                        "lakelog verify --all: queues and index too",
                        partial(starting.verified, size, True),
                    ),
                    Contender(
                        "read and crc32",
                        "one process, zlib.crc32 of each 8 MiB",
                        partial(starting.read_and_summed, size),
                    ),
                ],
            )
        ]
