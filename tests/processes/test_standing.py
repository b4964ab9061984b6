"""Processes that are stopped, killed and continued at random: the others go on, nothing is lost.

Each opens the store, puts durable messages from two threads, closes the store, and begins again. A
stop may come at any instruction: inside of an append, of a sync that others wait for, of joining
and leaving. The test prints its figures; ``PROCESSES_MEMBERS``,
``PROCESSES_SECONDS`` and ``PROCESSES_SEED`` set its size.
"""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

import lakelog
from lakelog.errors import LakelogError, StoreFailed
from lakelog.log.commit_log import LogFiles
from lakelog.processes.append_section import AppendSection
from lakelog.processes.locks import is_stopped
from lakelog.results import PutStatus
from tests.support.forked import FORKS
from tests.support.waiting import until

SETTINGS: Final[dict[str, Any]] = {"flush": "group-commit", "segment_size_bytes": 1 << 20}
LONG_S: Final = 0.5
MOST_S: Final = 5.0
ACKED, WAITED, FAILED, STRUCK = "acked", "waited", "failed", "struck"
END: Final = "end"


def member(folder: Path, name: int, seed: int, kind: type[Member]) -> None:
    """One of the processes: open, put and close, until the file :data:`END` is there."""
    one = kind(folder, name, random.Random(seed))
    try:
        while not (folder / END).exists():
            one.round()
    except BaseException:
        one.note(FAILED, *traceback.format_exc().splitlines())
        raise


def delayed_s() -> float:
    """Seconds for which this thread could run, but had no processor; 0 if they cannot be read."""
    with suppress(OSError):  # for want of descriptors
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    return 0.0


class Member:
    """One process; it writes a line of its journal for each event."""

    def __init__(self, folder: Path, name: int, dice: random.Random) -> None:
        self.folder = folder
        self.name = name
        self.dice = dice
        self.journal = (folder / f"{name}.journal").open("ab", buffering=0)

    def note(self, *words: object) -> None:
        self.journal.write((" ".join(map(str, words)) + "\n").encode())

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        begun, before_s = time.monotonic(), delayed_s()
        try:
            yield
        finally:
            if time.monotonic() - begun >= LONG_S:
                delay_s = max(0.0, delayed_s() - before_s)
                self.note(WAITED, begun, time.monotonic(), delay_s, what)

    def round(self) -> None:
        try:
            with self.timed("open"):
                store = lakelog.open(self.folder / "s", **SETTINGS)
        except LakelogError:
            time.sleep(0.05)
            return
        until_s = time.monotonic() + self.dice.uniform(0.1, 2)
        with ThreadPoolExecutor(2) as threads:
            for each in [threads.submit(self.puts, store, number, until_s) for number in range(2)]:
                each.result()
        try:
            with self.timed("close"):
                store.close()
        except LakelogError as error:
            self.note(FAILED, error)

    def puts(self, store: lakelog.Store, thread: int, until_s: float) -> None:
        number = 0
        while time.monotonic() < until_s:
            body = f"{self.name}.{os.getpid()}.{thread}.{until_s}.{number}"
            try:
                with self.timed("put"):
                    store.put(lakelog.Message("t", body.encode() + b" " * 2000))
                self.note(ACKED, body)
                number += 1
            except StoreFailed as error:
                self.note(FAILED, error)
                return
            except LakelogError:
                time.sleep(0.01)  # it is refused while a stopped process appends


@attrs.define
class Crowd:
    """The processes; ``stops`` has begin and end of each stop, by process id."""

    folder: Path
    dice: random.Random
    kind: type[Member]
    members: list[BaseProcess] = attrs.field(factory=list)
    stops: dict[int, list[list[float]]] = attrs.field(factory=dict)
    stopped: dict[int, float] = attrs.field(factory=dict)

    def start(self) -> None:
        name = len(self.stops)
        arguments = (self.folder, name, self.dice.randrange(1 << 30), self.kind)
        process = FORKS.Process(target=member, name=str(name), args=arguments, daemon=True)
        process.start()
        self.members.append(process)
        self.stops[name] = []

    def check(self) -> None:
        """Raise ``AssertionError`` with what a member has noted, if one has ended by itself."""
        ended = {each.name: each.exitcode for each in self.members if each.exitcode is not None}
        if ended:
            noted = [f"{name}: {' '.join(words)}" for name, words in self.events()[FAILED]]
            raise AssertionError("\n".join([f"ended by themselves: {ended}", *noted]))

    def stop(self, at: int) -> None:
        """Stop one for up to four seconds."""
        if at not in self.stopped:
            os.kill(self.members[at].pid or 0, signal.SIGSTOP)
            self.stops[int(self.members[at].name)].append([time.monotonic(), float("inf")])
            self.stopped[at] = time.monotonic() + self.dice.uniform(0.2, 4)

    def go_on(self, *, all_of_them: bool = False) -> None:
        for at, until_s in list(self.stopped.items()):
            if all_of_them or time.monotonic() > until_s:
                os.kill(self.members[at].pid or 0, signal.SIGCONT)
                self.stops[int(self.members[at].name)][-1][1] = time.monotonic()
                del self.stopped[at]

    def kill(self, at: int) -> None:
        """Kill one, and start another."""
        self.members[at].kill()
        self.members[at].join()
        self.stopped.pop(at, None)
        self.start()
        self.members[at] = self.members.pop()

    def events(self) -> dict[str, list[tuple[int, list[str]]]]:
        """Name and words of each event, by its kind."""
        found: dict[str, list[tuple[int, list[str]]]]
        found = {ACKED: [], WAITED: [], FAILED: [], STRUCK: []}
        for name in self.stops:
            journal = self.folder / f"{name}.journal"
            for line in journal.read_text().splitlines() if journal.exists() else ():
                kind, *words = line.split(" ")
                found[kind].append((name, words))
        return found

    def longest(self, waits: list[tuple[int, list[str]]]) -> tuple[float, float, str]:
        """The longest wait in seconds, its delay for want of a processor, and its kind.

        The stops of the waiting process are no part of it, nor is the delay.
        """
        longest = (0.0, 0.0, "-")
        for name, (begun, ended, delay_s, what) in waits:
            wait = float(ended) - float(begun) - float(delay_s)
            for stop, go_on in self.stops[name]:
                wait -= max(0.0, min(go_on, float(ended)) - max(stop, float(begun)))
            longest = max(longest, (wait, float(delay_s), what))
        return longest


def run(folder: Path, members: int, seconds: float, kind: type[Member] = Member) -> float:
    """Return the longest wait, in seconds."""
    seed = int(os.environ.get("PROCESSES_SEED", random.randrange(1 << 30)))
    crowd = Crowd(folder, random.Random(seed), kind)
    lakelog.open(folder / "s", **SETTINGS).close()
    for _ in range(members):
        crowd.start()
    end, turns = time.monotonic() + seconds, 0
    try:
        while time.monotonic() < end or turns < 10:
            turns += 1
            crowd.check()
            time.sleep(crowd.dice.uniform(0, 0.2))
            at = crowd.dice.randrange(members)
            if crowd.dice.random() < 0.1:
                crowd.kill(at)
            elif len(crowd.stopped) < members // 2:
                crowd.stop(at)
            crowd.go_on()
        crowd.go_on(all_of_them=True)
        (folder / END).touch()
        for each in crowd.members:
            each.join(120)
            assert each.exitcode == 0
    finally:
        for each in crowd.members:
            each.kill()
            each.join()
    events = crowd.events()
    assert not events[FAILED], events[FAILED][:5]
    with lakelog.open(folder / "s", mode="read") as store:
        found = {bytes(each.body).rstrip().decode() for each in store.scan()}
    acked = {words[0] for _, words in events[ACKED]}
    assert acked
    assert not acked - found, f"{len(acked - found)} of {len(acked)} are lost; seed {seed}"
    wait_s, delay_s, what = crowd.longest(events[WAITED])
    stops = sum(map(len, crowd.stops.values()))
    print(  # noqa: T201  # the record of a soak
        f"{members} members, {len(crowd.stops) - members} killed, {stops} stops, "
        f"{len(acked)} acknowledged, none lost, longest wait {wait_s:.2f} s ({what}, "
        f"and {delay_s:.2f} s without a processor), "
        f"{len(events[STRUCK])} exceptions, seed {seed}"
    )
    return wait_s


def stops_in_a_sync(path: Path) -> None:
    with lakelog.open(path, **SETTINGS) as store:
        store.put(lakelog.Message("t", b"first"))

        def stop(*_: object) -> None:
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(3600)  # this thread may go on for a moment

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(LogFiles, "sync_bytes", stop)
            store.put_async(lakelog.Message("t", b"second"))
            time.sleep(3600)


@pytest.mark.both_ways
@pytest.mark.timeout(120)
def test_a_process_that_is_stopped_in_a_sync(tmp_path: Path) -> None:
    patient = {"sync_flush_timeout_ms": 100_000}
    with lakelog.open(tmp_path / "s", **SETTINGS, group_commit=patient) as store:
        other = FORKS.Process(target=stops_in_a_sync, args=(tmp_path / "s",), daemon=True)
        other.start()
        try:
            until(lambda: is_stopped(other.pid or 0))
            for number in range(3):
                result = store.put(lakelog.Message("t", b"%d" % number))
                assert result.status is PutStatus.PUT_OK
        finally:
            other.kill()
            other.join()


def stops_in_an_append(path: Path) -> None:
    with lakelog.open(path, **SETTINGS) as store:
        enter = AppendSection.enter

        def stop(section: AppendSection) -> None:
            enter(section)
            os.kill(os.getpid(), signal.SIGSTOP)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(AppendSection, "enter", stop)
            store.put(lakelog.Message("t", b"second"))


@pytest.mark.timeout(120)
def test_a_close_waits_for_no_append_of_another_process(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store = lakelog.open(path, **SETTINGS, os_page_cache_busy_timeout_ms=3_600_000)
    store.put(lakelog.Message("t", b"first"))
    other = FORKS.Process(target=stops_in_an_append, args=(path,), daemon=True)
    other.start()
    with ThreadPoolExecutor(1) as thread:
        try:
            until(lambda: is_stopped(other.pid or 0))
            closing = thread.submit(store.close)
            until(closing.done, "the close", seconds=30)
        finally:
            other.kill()
            other.join()
        closing.result()


@pytest.mark.timeout(300)
def test_some_are_stopped(tmp_path: Path) -> None:
    run(tmp_path, 4, 6)


@pytest.mark.soak
def test_many_are_stopped_for_long(tmp_path: Path) -> None:
    members = int(os.environ.get("PROCESSES_MEMBERS", "64"))
    seconds = float(os.environ.get("PROCESSES_SECONDS", "600"))
    assert run(tmp_path, members, seconds) <= MOST_S
