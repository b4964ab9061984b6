"""RocketMQ's HA protocol: lakelog in both roles, compared with the real pair."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Final

from tests.bench.durable.opening import GIB_VARIABLE
from tests.bench.model import Column, Contender, Contest, Suite
from tests.bench.replication import catchup, delay, putting
from tests.bench.replication.sides import OURS, REAL

_PAIRS: Final = [(master, slave) for master in (REAL, OURS) for slave in (REAL, OURS)]
_REAL_PAIR: Final = f"{REAL} to {REAL}"
_RECORD_BYTES: Final = catchup.BODY_BYTES + 120
_REAL: Final = "broker 5.3.3, ASYNC_FLUSH, heap 512 MiB, default sizes of frames"
_OURS: Final = "lakelog serve, and lakelog replicate --vouch received, default settings"
_REAL_PUTS: Final = (
    "DefaultMessageStore 5.3.3 as SYNC_MASTER, inSyncReplicas 2, and a slave broker; ASYNC_FLUSH "
    "or SYNC_FLUSH on both; the slave acknowledges written bytes"
)
_OUR_PUTS: Final = (
    "in_sync_replicas 2, and lakelog replicate --counts; timed, send written, --vouch age: written "
    "bytes count; or group-commit, send flushed, --vouch received: synced bytes count"
)


def _catch_up(quick: bool) -> Sequence[Contest]:
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


def _copied_puts(quick: bool) -> Sequence[Contest]:
    warm_ms, measured_ms = (500, 500) if quick else (700, 1_000)
    return [
        Contest(
            title,
            [
                Contender(
                    name,
                    note,
                    partial(run, putting.Puts(is_durable, warm_ms, measured_ms)),
                    {REAL: REAL},
                )
                for name, note, run in (
                    (REAL, _REAL_PUTS, putting.real),
                    (OURS, _OUR_PUTS, putting.ours),
                )
            ],
        )
        for title, is_durable in (("written", False), ("synced", True))
    ]


def _delays(quick: bool) -> Sequence[Contest]:
    count = 10 if quick else 30
    rows = 3 if quick else 6
    bytes_there = [
        Contender(
            f"{master} to {slave}",
            f"{_REAL}, ASYNC_MASTER; {_OURS}; a master of lakelog with group-commit",
            partial(delay.run, delay.Delays(master, slave, count, to_table=False)),
            {_REAL_PAIR: _REAL_PAIR},
        )
        for master, slave in _PAIRS
    ]
    landed = [
        Contender(
            f"{master} to a table",
            "lakelog replicate --to iceberg; --vouch received; from RocketMQ with SYNC_FLUSH, "
            "--vouch flushed",
            partial(delay.run, delay.Delays(master, OURS, rows, to_table=True)),
            {_REAL_PAIR: ""},
        )
        for master in (REAL, OURS)
    ]
    return [Contest(f"{count} messages", bytes_there), Contest(f"{rows} rows", landed)]


REPLICATION: Final = (
    Suite(
        "replication",
        "a new slave gets a log of 1 KiB messages; after its first quarter, in the page cache",
        (
            Column("mb_s", "MB/s", ",.0f"),
            Column("master_mb_cpu_s", "MB/CPU s, master", ",.0f"),
            Column("slave_mb_cpu_s", "MB/CPU s, slave", ",.0f"),
        ),
        _catch_up,
    ),
    Suite(
        "replication_puts",
        "puts of 1 KiB that wait for one copy; the master in the process that puts",
        tuple(
            Column(f"{figure}_{threads}", f"{heading}, {threads} thread{'s' * (threads > 1)}", form)
            for threads in putting.THREADS
            for figure, heading, form in (
                ("p50_us", "p50 µs", ",.0f"),
                ("p99_us", "p99 µs", ",.0f"),
                ("puts_s", "puts/s", ",.0f"),
            )
        ),
        _copied_puts,
        lower_is_better=True,
    ),
    Suite(
        "replication_latency",
        "from the acknowledgement of a message of 1 KiB at the master to its bytes in the slave",
        (
            Column("p50_ms", "p50 ms", ",.2f"),
            Column("p99_ms", "p99 ms", ",.2f"),
        ),
        _delays,
        lower_is_better=True,
    ),
)
