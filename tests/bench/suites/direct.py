"""Compares the writers: 1 KiB messages in batches, each batch synced by its put."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.bench.durable.work import Work
from tests.bench.model import LAKELOG, Column, Contender, Contest
from tests.bench.suites.durable import contender

_SECONDS: Final = 2.0
_QUICK_SECONDS: Final = 0.3
_SYNC_MIB: Final = (1, 4, 16)
_WRITERS: Final = ("mmap", "staged", "direct")
_MIB: Final = 1 << 20


class Direct:
    name = "direct"
    about = "1 KiB messages as columns, flush=inline: each batch is synced, by each writer"
    columns: Sequence[Column] = (
        Column("mb_s", "MB/s"),
        Column("p50_us", "p50 us", ",.0f"),
        Column("p99_us", "p99 us", ",.0f"),
    )
    lower_is_better = False

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        seconds = _QUICK_SECONDS if quick else _SECONDS
        return [_contest(mib, seconds) for mib in _SYNC_MIB]


def _contest(mib: int, seconds: float) -> Contest:
    work = Work(seconds, batch_size=mib * 1024, columns=True)
    return Contest(
        f"a sync every {mib} MiB",
        [
            contender(LAKELOG, "lakelog", work, "writer=file", flush="inline", writer="file"),
            *(
                contender(name, "lakelog", work, f"writer={name}", flush="inline", writer=name)
                for name in _WRITERS
            ),
            *_floors(mib, seconds),
        ],
    )


def _floors(mib: int, seconds: float) -> list[Contender]:
    """Writes of 1 MiB; the calls are counted as 1,024 messages, so that MB/s are comparable."""
    work = Work(seconds, batch_size=1024)
    options = {"write_bytes": _MIB, "sync_bytes": mib * _MIB}
    note = "os.pwrite of 1 MiB and fdatasync, into a fallocated file"
    return [
        contender("raw", "raw", work, note, **options),
        contender("raw O_DIRECT", "raw", work, f"{note}, with O_DIRECT", direct=True, **options),
    ]
