"""Producers in 1 to 16 processes, compared with one alone, the real store's threads, and others.

Either no put waits for the disk, or all puts of all stores do. Further suites measure the cost of
an owner: system calls per message, and memory and CPU time while idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.bench.durable.puts import contender
from tests.bench.durable.work import COLUMNS, Work
from tests.bench.model import LAKELOG, ROCKETMQ, Column, Contender, Contest, Sample, Suite, counted
from tests.bench.processes.calls import calls, idle
from tests.bench.processes.owner import ATTACHED, produced, produced_elsewhere
from tests.bench.running import JAVA, puts_of_java

_BATCH: Final = 1024
_IN_FLIGHT: Final = 256
_JAVA_BATCHES: Final = (32, 256, 1024)
_SETTINGS: Final = 'flush = "{flush}"\n'


def _contests(flush: str, quick: bool) -> Sequence[Contest]:
    """Return the contests for one flush strategy."""
    work = Work(0.3 if quick else 1.0)
    batches = replace(work, batch_size=_BATCH)
    columns = replace(batches, columns=True)

    def contest(count: int, title: str, ours: dict[str, tuple[str, Work]]) -> Contest:
        (note, first), plain = ours[LAKELOG], work if title == "put" else batches
        alone = f"{note}, one thread; lakelog.open in one process, flush={flush}"
        attached = [
            _attached(name, each, count, said, flush) for name, (said, each) in ours.items()
        ]
        return Contest(
            f"{title}, {counted(count, 'producer')}",
            [
                *attached,
                contender("alone", "lakelog", first, alone, flush=flush),
                _java(plain, count, flush),
                *_others(plain, count, waits=flush == "group-commit"),
            ],
        )

    puts = {
        LAKELOG: ("put", work),
        "lakelog put_async": ("256 under way", replace(work, in_flight=_IN_FLIGHT)),
    }
    many = {
        LAKELOG: ("MessageColumns", columns),
        "lakelog messages": ("put_batch of Message", batches),
    }
    return [
        *(contest(count, "put", puts) for count in (1, 2, 4, 8, 16)),
        *(contest(count, f"batches of {_BATCH:,}", many) for count in (1, 2, 4)),
    ]


def _attached(name: str, work: Work, count: int, note: str, flush: str) -> Contender:
    works = [replace(work, options=ATTACHED)] * count
    said = f"{note}; attached to lakelog serve, flush={flush}"
    settings = _SETTINGS.format(flush=flush)
    return Contender(name, said, lambda folder: produced(folder, settings, works))


def _others(work: Work, count: int, *, waits: bool) -> list[Contender]:
    """Return the other stores that several processes can write to."""
    options: dict[str, dict[str, Any]] = {
        "lmdb": {"shared": True, "sync": waits},
        "sqlite": {"journal": "WAL", "synchronous": "FULL" if waits else "NORMAL"},
    }
    return [_elsewhere(name, work, count, given) for name, given in options.items()]


def _elsewhere(name: str, work: Work, count: int, options: dict[str, Any]) -> Contender:
    works = [replace(work, options=options)] * count
    said = ", ".join(f"{option}={value}" for option, value in options.items())
    note = f"a transaction for each call, processes; {said}"
    return Contender(name, note, lambda folder: produced_elsewhere(folder, name, works))


def _java(work: Work, count: int, flush: str) -> Contender:
    kind = "SYNC" if flush == "group-commit" else "ASYNC"
    note = (
        f"{JAVA}, {kind}_FLUSH, a thread for each producer; queues and index built meanwhile; "
        f"putMessage, or putMessages, the best of batches of {', '.join(map(str, _JAVA_BATCHES))}"
    )

    def run(folder: Path) -> Sample:
        given: dict[str, int | str] = {"flush": kind, "threads": count}
        if work.batch_size == 1:
            return puts_of_java("append", work.seconds, folder, **given)
        samples = [
            puts_of_java("batch", work.seconds, folder / str(size), n=size, **given)
            for size in _JAVA_BATCHES
        ]
        return max(samples, key=lambda sample: sample["rows_s"])

    return Contender(ROCKETMQ, note, run)


def _calls(quick: bool) -> Sequence[Contest]:
    seconds = 0.3 if quick else 2.0
    longer = Work(seconds * 3, options=ATTACHED)
    ways = {
        "put": longer,
        "put_async": replace(longer, in_flight=_IN_FLIGHT),
        "batches": replace(longer, batch_size=_BATCH, columns=True),
    }
    settings, note = _SETTINGS.format(flush="timed"), "flush=timed; all threads of the owner"
    return [
        Contest(
            f"{way}, {counted(count, 'producer')}",
            [Contender(LAKELOG, note, partial(calls, settings, [work] * count, seconds))],
        )
        for way, work in ways.items()
        for count in (1, 4)
    ]


def _idle(quick: bool) -> Sequence[Contest]:
    settings, seconds = _SETTINGS.format(flush="timed"), 3.0 if quick else 20.0
    return [
        Contest(
            title,
            [Contender(LAKELOG, "lakelog serve", partial(idle, settings, count, seconds))],
        )
        for count, title in ((0, "nobody attached"), (2, "2 producers attached"))
    ]


PRODUCERS: Final = tuple(
    Suite(
        name,
        about,
        (*COLUMNS, Column("mb_s", "MB/s"), Column("cores", "owner's cores", ".2f")),
        partial(_contests, flush),
    )
    for name, about, flush in (
        ("processes", "producers in processes; nothing waits for the disk", "timed"),
        ("processes_durable", "the same, all durable before a put returns", "group-commit"),
    )
)
OWNERS: Final = (
    Suite(
        "processes_calls",
        "system calls of an owner for each message of 1 KiB, under strace",
        (
            Column("calls_message", "calls/message", ".4f"),
            Column("calls_s", "calls/s"),
            Column("rows_s", "messages/s"),
        ),
        _calls,
        lower_is_better=True,
    ),
    Suite(
        "processes_idle",
        "lakelog serve while nothing happens, all its processes together",
        (
            Column("cpu_percent", "% of a core", ".2f"),
            Column("pss_mib", "PSS MiB"),
            Column("processes", "processes"),
        ),
        _idle,
        lower_is_better=True,
    ),
)
