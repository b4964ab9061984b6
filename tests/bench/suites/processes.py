"""Producers in 1 to 16 processes, compared with one alone, the real store's threads, and others.

Either no put waits for the disk, or all puts of all stores do. Further contests measure the cost of
an owner: system calls per message, and memory and CPU time while idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.bench.durable.work import COLUMNS, Work
from tests.bench.model import LAKELOG, CannotRunError, Column, Contender, Contest, Sample
from tests.bench.peers import java
from tests.bench.processes.calls import calls
from tests.bench.processes.idle import idle
from tests.bench.processes.owner import ATTACHED, produced, produced_elsewhere
from tests.bench.suites.durable import contender
from tests.oracle.java import build_oracle, missing

_SECONDS: Final = 1.0
_QUICK_SECONDS: Final = 0.3
_PRODUCERS: Final = (1, 2, 4, 8, 16)
_BATCH_PRODUCERS: Final = (1, 2, 4)
_BATCH: Final = 1024
_IN_FLIGHT: Final = 256
_JAVA_BATCHES: Final = (32, 256, 1024)
_WARM_UP_MS: Final = 2000
_SETTINGS: Final = 'flush = "{flush}"\n'
_WAIT_FOR_DISK: Final = ("group-commit",)
_JAVA_FLUSH: Final = {"timed": "ASYNC", "group-commit": "SYNC"}
_JAVA_BUFFER_BYTES: Final = {"append": 128 << 10, "batch": 2 << 20}
_CALLS_SECONDS: Final = 2.0
_IDLE_SECONDS: Final = 20.0
_QUICK_IDLE_SECONDS: Final = 3.0


class Processes:
    """A suite for one flush strategy."""

    columns: Sequence[Column] = (
        *COLUMNS,
        Column("mb_s", "MB/s"),
        Column("cores", "owner's cores", ".2f"),
    )
    lower_is_better = False

    def __init__(self, name: str, about: str, flush: str) -> None:
        self.name = name
        self.about = about
        self._flush = flush

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        seconds = _QUICK_SECONDS if quick else _SECONDS
        return [
            *(self._singles(Work(seconds), count) for count in _PRODUCERS),
            *(self._batches(Work(seconds, batch_size=_BATCH), count) for count in _BATCH_PRODUCERS),
        ]

    def _singles(self, work: Work, count: int) -> Contest:
        background = replace(work, in_flight=_IN_FLIGHT)
        return Contest(
            f"put, {_named(count)}",
            [
                self._attached(LAKELOG, work, count, "put"),
                self._attached("lakelog put_async", background, count, "256 under way"),
                self._alone("alone", work, "put, one thread"),
                self._java(work, count, "append", ()),
                *self._others(work, count),
            ],
        )

    def _batches(self, work: Work, count: int) -> Contest:
        columns = replace(work, columns=True)
        return Contest(
            f"batches of {_BATCH:,}, {_named(count)}",
            [
                self._attached(LAKELOG, columns, count, "MessageColumns"),
                self._attached("lakelog messages", work, count, "put_batch of Message"),
                self._alone("alone", columns, "MessageColumns, one thread"),
                self._java(work, count, "batch", _JAVA_BATCHES),
                *self._others(work, count),
            ],
        )

    def _attached(self, name: str, work: Work, count: int, note: str) -> Contender:
        settings = _SETTINGS.format(flush=self._flush)
        works = [replace(work, options=ATTACHED)] * count
        said = f"{note}; attached to lakelog serve, flush={self._flush}"
        return Contender(name, said, lambda folder: produced(folder, settings, works))

    def _alone(self, name: str, work: Work, note: str) -> Contender:
        said = f"{note}; lakelog.open in one process, flush={self._flush}"
        return contender(name, "lakelog", work, said, flush=self._flush)

    def _others(self, work: Work, count: int) -> list[Contender]:
        """Return the other stores that several processes can write to."""
        waits = self._flush in _WAIT_FOR_DISK
        return [
            _elsewhere("lmdb", work, count, "a transaction", shared=True, sync=waits),
            _elsewhere(
                "sqlite",
                work,
                count,
                "a transaction",
                journal="WAL",
                synchronous="FULL" if waits else "NORMAL",
            ),
        ]

    def _java(self, work: Work, count: int, mode: str, sizes: Sequence[int]) -> Contender:
        said = (
            f"DefaultMessageStore 5.3.3, {_JAVA_FLUSH[self._flush]}_FLUSH, default files, a thread "
            "for each producer, 2 s of warm-up; queues and index built meanwhile; putMessage, or "
            f"putMessages, the best of batches of {', '.join(map(str, _JAVA_BATCHES))}"
        )
        flush = _JAVA_FLUSH[self._flush]
        return Contender(
            java.NAME, said, partial(_run_java, work.seconds, mode, flush, count, sizes)
        )


def _elsewhere(driver: str, work: Work, count: int, what: str, **options: Any) -> Contender:
    works = [replace(work, options=options)] * count
    said = ", ".join(f"{name}={value}" for name, value in options.items())
    note = f"{what} for each call, processes; {said}"
    return Contender(driver, note, lambda folder: produced_elsewhere(folder, driver, works))


def _named(count: int) -> str:
    return f"{count} producer{'s' * (count > 1)}"


def _run_java(
    seconds: float, mode: str, flush: str, threads: int, sizes: Sequence[int], folder: Path
) -> Sample:
    """Run the real store, and return the best of its batch sizes."""
    reason = missing()
    if reason:
        raise CannotRunError(reason)
    given = [{"n": size} for size in sizes] or [{}]
    samples = [
        _java_sample(seconds, mode, folder / str(at), flush=flush, threads=threads, **more)
        for at, more in enumerate(given)
    ]
    return max(samples, key=lambda sample: sample["rows_s"])


def _java_sample(seconds: float, mode: str, folder: Path, **more: int | str) -> Sample:
    row = build_oracle().bench(
        folder,
        mode,
        {"maxMessageSize": str(_JAVA_BUFFER_BYTES[mode])},
        body=1024,
        ms=round(seconds * 1000),
        warm_ms=_WARM_UP_MS if seconds >= _SECONDS else 10,
        **more,
    )
    return {
        "rows_s": row["msgs_s"],
        "mb_s": row["mb_s"],
        "p50_us": row["p50_us"],
        "p99_us": row["p99_us"],
    }


class ProcessesCalls:
    name = "processes_calls"
    about = "system calls of an owner for each message of 1 KiB, under strace"
    columns: Sequence[Column] = (
        Column("calls_message", "calls/message", ".4f"),
        Column("calls_s", "calls/s"),
        Column("rows_s", "messages/s"),
    )
    lower_is_better = True

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        seconds = _QUICK_SECONDS if quick else _CALLS_SECONDS
        longer = Work(seconds * 3, options=ATTACHED)
        ways = {
            "put": longer,
            "put_async": replace(longer, in_flight=_IN_FLIGHT),
            "batches": replace(longer, batch_size=_BATCH, columns=True),
        }
        return [
            Contest(f"{way}, {_named(count)}", [self._counted(work, count, seconds)])
            for way, work in ways.items()
            for count in (1, 4)
        ]

    def _counted(self, work: Work, count: int, seconds: float) -> Contender:
        settings = _SETTINGS.format(flush="timed")
        note = "flush=timed; all threads of the owner"
        return Contender(LAKELOG, note, partial(calls, settings, [work] * count, seconds))


class ProcessesIdle:
    name = "processes_idle"
    about = "lakelog serve while nothing happens, all its processes together"
    columns: Sequence[Column] = (
        Column("cpu_percent", "% of a core", ".2f"),
        Column("pss_mib", "PSS MiB", ".0f"),
        Column("processes", "processes"),
    )
    lower_is_better = True

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        seconds = _QUICK_IDLE_SECONDS if quick else _IDLE_SECONDS
        return [
            Contest(
                "nobody attached" if not count else f"{_named(count)} attached",
                [_idle(count, seconds)],
            )
            for count in (0, 2)
        ]


def _idle(count: int, seconds: float) -> Contender:
    settings = _SETTINGS.format(flush="timed")
    return Contender(LAKELOG, "lakelog serve", partial(idle, settings, count, seconds))


PROCESSES: Final = (
    Processes("processes", "producers in processes; nothing waits for the disk", "timed"),
    Processes("processes_durable", "the same, all durable before a put returns", "group-commit"),
    ProcessesCalls(),
    ProcessesIdle(),
)
