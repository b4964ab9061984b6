"""Runs ``lakelog serve`` and producers in separate processes; or producers of another store."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Final

import psutil

from lakelog.format.layout import OWN_DIR, SETTINGS_FILE
from tests.bench.durable.peers import peer
from tests.bench.durable.work import Work, command
from tests.bench.model import CannotRunError, Sample
from tests.bench.running import go, line_of, started
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
    words = [sys.executable, "-m", "tests.processes.command", "serve", str(folder / STORE)]
    with (folder / "serve").open("w+") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output)
        try:
            _await_owner(folder, process)
            yield psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def _await_owner(folder: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_SECONDS
    while owner_of(folder) is None:
        if process.poll() is not None or time.monotonic() > end:
            text = (folder / "serve").read_text().strip() or "lakelog serve does not begin"
            raise CannotRunError(text.splitlines()[-1])
        time.sleep(0.05)


@contextmanager
def producers(
    directory: Path, works: Sequence[Work], name: str = "lakelog"
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start producers, each with its work; yields them when all are ready."""
    with started(command(name, directory, work, "beside") for work in works) as processes:
        yield processes


def produced(folder: Path, settings: str, works: Sequence[Work]) -> Sample:
    """Return figures of all producers together, and of their owner.

    ``cores`` is the CPU time of the owner and its services while all put, per second.
    """
    with serving(folder, settings) as owner, producers(folder / STORE, works) as processes:
        begin, before = time.monotonic(), cpu_seconds(owner)
        found = _together(processes)
        cores = (cpu_seconds(owner) - before) / (time.monotonic() - begin)
        go(processes)
    return {**found, "cores": cores}


def produced_elsewhere(folder: Path, name: str, works: Sequence[Work]) -> Sample:
    """Return the same figures for processes that share another store."""
    made = peer(name)
    made.open(folder, works[0].options)
    made.close()
    with producers(folder, works, name) as processes:
        found = _together(processes)
        go(processes)
    return found


def _together(processes: Sequence[subprocess.Popen[str]]) -> Sample:
    """Let all put; return the sum of rates, the mean of medians, the largest 99th percentile."""
    go(processes)
    samples = [json.loads(line_of(process)) for process in processes]
    found = {name: [each[name] for each in samples] for name in samples[0]}
    return {
        **{name: sum(found[name]) for name in ("rows_s", "mb_s")},
        "p50_us": mean(found["p50_us"]),
        "p99_us": max(found["p99_us"]),
    }


def family(owner: psutil.Process) -> list[psutil.Process]:
    """Return a process and all its descendants."""
    return [owner, *owner.children(recursive=True)]


def cpu_seconds(owner: psutil.Process) -> float:
    """Return the CPU seconds of a process and its descendants, with nanosecond resolution."""
    found = (Path(f"/proc/{each.pid}/task").glob("*/schedstat") for each in family(owner))
    return sum(int(file.read_text().split()[0]) for files in found for file in files) / 1e9
