"""RocketMQ's HA protocol: lakelog in both roles beside the real pair."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Final

from tests.bench.model import Column, Contender, Contest
from tests.bench.replication import catchup
from tests.bench.replication.sides import OURS, REAL
from tests.bench.suites.recovery import GIB_VARIABLE

_PAIRS: Final = [(master, slave) for master in (REAL, OURS) for slave in (REAL, OURS)]
_REAL_PAIR: Final = f"{REAL} to {REAL}"
_RECORD_BYTES: Final = catchup.BODY_BYTES + 120
_REAL: Final = "broker 5.3.3, ASYNC_FLUSH, heap 512 MiB, default sizes of frames"
_OURS: Final = "lakelog serve, and lakelog replicate --vouch received, default settings"


class CatchUp:
    name = "replication"
    about = "a new slave gets a log of 1 KiB messages; after its first quarter, in the page cache"
    columns: Sequence[Column] = (
        Column("mb_s", "MB/s", ",.0f"),
        Column("master_mb_cpu_s", "MB/CPU s, master", ",.0f"),
        Column("slave_mb_cpu_s", "MB/CPU s, slave", ",.0f"),
    )
    lower_is_better = False

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        gib = 0.125 if quick else float(os.environ.get(GIB_VARIABLE, "1"))
        rows = int(gib * (1 << 30)) // _RECORD_BYTES
        return [
            Contest(
                f"{gib:g} GiB",
                [
                    Contender(
                        f"{master} to {slave}",
                        f"{_REAL}; {_OURS}",
                        partial(catchup.run, master, slave, rows),
                        {_REAL_PAIR: _REAL_PAIR},
                    )
                    for master, slave in _PAIRS
                ],
            )
        ]


REPLICATION: Final = (CatchUp(),)
