"""Runs ``lakelog serve`` and producers in separate processes; or producers of another store."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any, Final

import psutil

from lakelog.format.layout import OWN_DIR, SETTINGS_FILE
from tests.bench import durable
from tests.bench.durable.work import Work
from tests.bench.model import CannotRunError, Sample
from tests.bench.processes.producer import READY
from tests.processes.member import owner_of
from tests.processes.words import STORE

ATTACHED: Final = {"attach": {"take_over": False}}
_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 60.0


@contextmanager
def serving(folder: Path, settings: str) -> Iterator[psutil.Process]:
    """Run an owner of ``folder/store``; yields its process once it admits producers.

    :param settings: of the store, as TOML
    """
    own = folder / STORE / OWN_DIR
    own.mkdir(parents=True)
    (own / SETTINGS_FILE).write_text(settings)
    command = [sys.executable, "-m", "tests.processes.command", "serve", str(folder / STORE)]
    with (folder / "serve").open("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            _await_owner(folder, process)
            yield psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            _ended(process)


def _await_owner(folder: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_SECONDS
    while owner_of(folder) is None:
        if process.poll() is not None or time.monotonic() > end:
            text = (folder / "serve").read_text().strip() or "lakelog serve does not begin"
            raise CannotRunError(text.splitlines()[-1])
        time.sleep(0.05)


def _ended(process: subprocess.Popen[Any]) -> None:
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


@contextmanager
def producers(
    directory: Path, works: Sequence[Work], driver: str = "lakelog"
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start producers, each with its work; yields them when all are ready."""
    with ExitStack() as stack:
        processes = [stack.enter_context(_producer(driver, directory, work)) for work in works]
        for process in processes:
            if line_of(process) != READY:
                raise CannotRunError(f"a producer died: {process.wait()}")
        yield processes


@contextmanager
def _producer(driver: str, directory: Path, work: Work) -> Iterator[subprocess.Popen[str]]:
    module, given = "tests.bench.processes.producer", json.dumps(asdict(work))
    command = [sys.executable, "-m", module, driver, str(directory), given]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def line_of(process: subprocess.Popen[str]) -> str:
    """Return the next line of a producer's output; empty if the producer has ended."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def go(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Let the producers take the next step."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def produced(folder: Path, settings: str, works: Sequence[Work]) -> Sample:
    """Return figures of all producers: sum of rates, mean of medians, largest 99th percentile.

    ``cores`` is the CPU time of the owner and its services while all put, per second.
    """
    with serving(folder, settings) as owner, producers(folder / STORE, works) as processes:
        go(processes)
        begin, before = time.monotonic(), cpu_seconds(owner)
        lines = [line_of(process) for process in processes]
        cores = (cpu_seconds(owner) - before) / (time.monotonic() - begin)
        go(processes)
        if not all(lines):
            raise CannotRunError("a producer died")
    return {**_together([json.loads(line) for line in lines]), "cores": cores}


def produced_elsewhere(folder: Path, driver: str, works: Sequence[Work]) -> Sample:
    """Return the same figures for processes that share another store."""
    made = durable.module(driver).Peer()
    made.open(folder, works[0].options)
    made.close()
    with producers(folder, works, driver) as processes:
        go(processes)
        lines = [line_of(process) for process in processes]
        go(processes)
        if not all(lines):
            raise CannotRunError("a producer died")
    return _together([json.loads(line) for line in lines])


def _together(samples: Sequence[Sample]) -> Sample:
    return {
        "rows_s": sum(sample["rows_s"] for sample in samples),
        "mb_s": sum(sample["mb_s"] for sample in samples),
        "p50_us": mean(sample["p50_us"] for sample in samples),
        "p99_us": max(sample["p99_us"] for sample in samples),
    }


def family(owner: psutil.Process) -> list[psutil.Process]:
    """Return a process and all its descendants."""
    return [owner, *owner.children(recursive=True)]


def cpu_seconds(owner: psutil.Process) -> float:
    """Return the CPU seconds of a process and its descendants, with nanosecond resolution."""
    return sum(_cpu_seconds(each.pid) for each in family(owner))


def _cpu_seconds(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
