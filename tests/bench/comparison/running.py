"""Runs a process that puts until a fault, and one that reads the store afterwards; counts both."""

from __future__ import annotations

import itertools
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import attrs

from tests.bench.comparison.stores import Store
from tests.bench.model import NothingPutError
from tests.support.killing import ROOT

PATIENCE_SECONDS: Final = 60.0
_READ_SECONDS: Final = 300
_POLL_SECONDS: Final = 0.005
_LINE_BYTES: Final = 300
_REMARKS: Final = 3
_REMARK_LENGTH: Final = 200


@attrs.define
class Putting:
    """A process that puts numbered messages one by one; the result of each put is collected.

    :ivar acks: number and time in ns of each acknowledged put
    :ivar refusals: number, time in ns and error text of each refused put
    :ivar logged: the first line of its standard error, at the end
    """

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    acks: list[tuple[int, int]] = attrs.field(factory=list)
    refusals: list[tuple[int, int, str]] = attrs.field(factory=list)
    logged: str | None = None
    _ended: threading.Event = attrs.field(factory=threading.Event)

    @classmethod
    @contextmanager
    def started(
        cls, store: Store, directory: Path, first: int = 0, count: int = 0, pause_us: int = 0
    ) -> Iterator[Putting]:
        """Start the process; kill it at the end, unless it has ended."""
        command = store.putter(directory, first, count, pause_us)
        directory.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors) as process,
        ):
            putting = cls(process, errors)
            collecting = threading.Thread(target=putting._collect)
            collecting.start()
            try:
                yield putting
            finally:
                process.kill()
                collecting.join()
                putting.logged = putting._errors()[0] or None

    def _collect(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith(b"\n"):
                break  # an incomplete last line
            word, *rest = line.decode(errors="replace").split(maxsplit=3)
            if word == "ack":
                self.acks.append((int(rest[0]), int(rest[1])))
            elif word == "no":
                self.refusals.append((int(rest[0]), int(rest[1]), rest[2].strip()))
        self._ended.set()

    @property
    def outcomes(self) -> int:
        """The number of puts with a result."""
        return len(self.acks) + len(self.refusals)

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._ended.is_set()

    def wait(self, done: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> bool:
        """Wait until ``done`` is true; ``False`` if the process ended before, or on timeout."""
        until = time.monotonic() + seconds
        while not done():
            if self.has_ended or time.monotonic() > until:
                return done()
            time.sleep(_POLL_SECONDS)
        return True

    def wait_outcomes(self, more: int, seconds: float = PATIENCE_SECONDS) -> bool:
        """Wait for ``more`` further results; ``False`` as for :meth:`wait`."""
        most = self.outcomes + more
        return self.wait(lambda: self.outcomes >= most, seconds)

    def begin(self, puts: int = 1) -> None:
        """Wait for the first puts; raises NothingPutError without them."""
        if not self.wait_outcomes(puts):
            raise NothingPutError(f"nothing was put: {self.death()}")

    def kill(self) -> None:
        """Send SIGKILL, and collect the output until then."""
        self.process.kill()
        self.process.wait()
        self._ended.wait(PATIENCE_SECONDS)

    def acknowledged(self, before_ns: int | None = None) -> set[int]:
        """Return the acknowledged numbers, all or those before a time in ns."""
        return {number for number, at in self.acks if before_ns is None or at < before_ns}

    @property
    def next_number(self) -> int:
        """Return an unused number, also if a put was in progress."""
        last = [each[-1][0] for each in (self.acks, self.refusals) if each]
        return max(last, default=-1) + 2

    def death(self) -> str | None:
        """Return how the process ended, with its last line of errors; ``None`` while it runs."""
        code = self.process.wait() if self.has_ended else self.process.poll()
        if code is None:
            return None
        told = self._errors()[-1]
        return f"{how(code)}: {told}" if told else how(code)

    def _errors(self) -> list[str]:
        """The lines of its standard error."""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").splitlines()
        return [line[:_LINE_BYTES] for line in lines] or [""]


@attrs.define
class Found:
    """The result of a process that read the store.

    :ivar open_ms: duration of the open, in ms; ``None`` if the store did not open
    :ivar queues: the numbers of each queue in the order of reading
    :ivar wrong: number of messages whose bytes differ from those that were put
    :ivar told: the store's reports of damage
    :ivar logged: other lines in its log, at the level of errors
    """

    open_ms: float | None = None
    queues: dict[int, list[int]] = attrs.field(factory=dict)
    wrong: int = 0
    told: list[str] = attrs.field(factory=list)
    logged: str | None = None

    def numbers(self) -> list[int]:
        """The numbers of all messages that were read whole, with repetitions."""
        return [number for queue in self.queues.values() for number in queue]

    def disordered(self) -> int:
        """The number of messages that follow a greater number in their queue."""
        return sum(
            before > after
            for queue in self.queues.values()
            for before, after in itertools.pairwise(queue)
        )

    def take(self, line: str) -> bool:
        """Process a line of the reader; return whether it is the last one."""
        word, _, rest = line.partition(" ")
        if word == "m":
            queue, number = rest.split()
            self.queues.setdefault(int(queue), []).append(int(number))
        elif word == "open":
            self.open_ms = float(rest) * 1000
        elif word == "bad":
            self.wrong += 1
        elif word == "error":
            self.told.append(rest)
        return word == "end"


def read(store: Store, directory: Path) -> Found:
    """Open the store in a new process, and read it to its end."""
    found = Found()
    try:
        done = subprocess.run(
            store.reader(directory),
            cwd=ROOT,
            capture_output=True,
            timeout=_READ_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        found.told.append(f"reading did not end within {_READ_SECONDS} s")
        return found
    lines = done.stdout.decode(errors="replace").splitlines()
    errors = done.stderr.decode(errors="replace").strip()[:_LINE_BYTES]
    found.logged = errors or None
    if not any(found.take(line) for line in lines):
        found.told.append(f"{how(done.returncode)}: {errors}")
    return found


def how(code: int) -> str:
    """Return an exit code as text."""
    return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


@attrs.define
class Tally:
    """The counts over all rounds; after each, a new process read the store.

    :ivar acknowledged: acknowledged messages
    :ivar missing: acknowledged messages that are missing; each is counted once
    :ivar doubled: further copies of messages
    :ivar wrong: messages whose bytes differ from those that were put
    :ivar disordered: messages behind a later one of their queue
    :ivar unanswered: messages that are present and were never acknowledged
    :ivar unopened: rounds after which the store did not open
    :ivar lossy: rounds after which a message was missing
    :ivar oldest_lost_ms: longest time from the acknowledgement of a lost message to the cut
    """

    rounds: int = 0
    acknowledged: int = 0
    missing: int = 0
    doubled: int = 0
    wrong: int = 0
    disordered: int = 0
    unanswered: int = 0
    unopened: int = 0
    lossy: int = 0
    oldest_lost_ms: float = 0
    open_ms: list[float] = attrs.field(factory=list)
    told: list[str] = attrs.field(factory=list)

    def add(self, must: set[int], acknowledged: int, found: Found) -> set[int]:
        """Add a round; return the numbers of its missing messages.

        :param must: the numbers of all messages that must be present
        :param acknowledged: the count of those that this round acknowledged
        """
        numbers = found.numbers()
        there = set(numbers)
        missing = must - there
        self.rounds += 1
        self.acknowledged += acknowledged
        self.missing += len(missing)
        self.lossy += bool(missing)
        self.doubled += len(numbers) - len(there)
        self.wrong += found.wrong
        self.disordered += found.disordered()
        self.unanswered += len(there - must)
        if found.open_ms is None:
            self.unopened += 1
        else:
            self.open_ms.append(found.open_ms)
        self.remark(*found.told)
        return missing

    def remark(self, *told: str) -> None:
        """Keep the first few different texts, shortened."""
        for each in told:
            short = each[:_REMARK_LENGTH]
            if short not in self.told and len(self.told) < _REMARKS:
                self.told.append(short)

    def record(self) -> dict[str, Any]:
        """Return the counts for JSON, with the median and the longest time to open, in ms."""
        found = attrs.asdict(self)
        times = found.pop("open_ms")
        found["oldest_lost_ms"] = round(self.oldest_lost_ms)
        found["open_ms"] = round(statistics.median(times), 1) if times else None
        found["longest_open_ms"] = round(max(times), 1) if times else None
        return found
