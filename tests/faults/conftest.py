"""A process whose system calls can be made to fail, for the tests of this folder."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from tests.support import required

ROOT: Final = Path(__file__).parents[2]
SHIM: Final = Path(__file__).with_name("shim.c")
PATIENCE_SECONDS: Final = 40
JOB: Final[Mapping[str, Any]] = {
    "workload": "all",
    "run": "first",
    "call": None,  # which call fails, with which error, from which one on, and whether for ever
    "below": ".",  # only for files below this folder of the store
    "error": "EIO",
    "nth": 1,
    "late": False,  # the workload says from when on
    "forever": False,
    "kill_after_seconds": None,
    "kill_after_events": None,  # as soon as it has told so many
    "file_limit_bytes": None,
    "tolerates_break": False,  # the disk goes away under it, and any error will do
    "patience_seconds": PATIENCE_SECONDS,
}
"""What a worker is told unless a test says otherwise."""


@attrs.frozen
class Outcome:
    """What a workload told.

    :ivar events: all of it, in order; ``fired`` says how often the fault had struck by then
    :ivar exit: how its process ended
    """

    events: list[dict[str, Any]]
    exit: int

    def told(self, word: str) -> list[dict[str, Any]]:
        return [event for event in self.events if word in event]

    def has(self, word: str) -> bool:
        return bool(self.told(word))

    @property
    def acks(self) -> list[str]:
        """Keys that were answered with ``PUT_OK``, in that order."""
        return [event["ack"] for event in self.told("ack")]

    @property
    def failures(self) -> list[str]:
        """Everything that was answered otherwise, and why."""
        return [str(event) for event in self.told("failed")]

    def before(self, seconds: float) -> Outcome:
        """What was answered before an instant of ``time.monotonic``."""
        events = [event for event in self.events if event.get("told_seconds", seconds) < seconds]
        return attrs.evolve(self, events=events)

    @property
    def fired(self) -> int:
        return max((event["fired"] for event in self.events), default=0)

    @property
    def calls(self) -> int:
        return max((event["calls"] for event in self.told("calls")), default=0)


class Workers:
    """Runs workloads, each in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, path: Path, settings: Mapping[str, Any], **more: Any) -> Outcome:
        """Work on the store in ``path``; fails the test where that hangs or breaks down.

        :param more: what differs from :data:`JOB`
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {**JOB, "path": str(path), "settings": settings, **more}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        outcome = Outcome(answer["events"], answer["exit"])
        for event in outcome.told("crashed"):
            pytest.fail(f"{more}: {event['crashed']}")
        assert not answer["hung"], f"{more} never ended; last: {outcome.events[-3:]}"
        return outcome

    @classmethod
    @contextmanager
    def started(cls, **environment: str) -> Iterator[Workers]:
        """Start the process that they are forked from."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.server"],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            yield cls(process)
            assert process.stdin is not None
            process.stdin.close()


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    with Workers.started() as started:
        yield started


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Processes whose calls can be made to fail; without a compiler tests skip, but in CI fail."""
    if shutil.which("cc") is None:
        required.missing("no C compiler is here: apt-get install gcc libc6-dev (Debian, Ubuntu)")
    if platform.libc_ver()[0] != "glibc":
        required.missing("the shim stands in for functions of glibc, not of another C library")
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    command = ["cc", "-Wall", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run([*command, SHIM, "-o", library, "-ldl"], check=True)
    with Workers.started(LD_PRELOAD=str(library)) as started:
        yield started
