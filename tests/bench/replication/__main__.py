"""Memory and CPU of ``lakelog replicate`` for several masters, idle and under a steady load.

``python -m tests.bench.replication --masters 8 --brokers 2 --rate 200 --seconds 60``. ``--brokers``
of the masters are real ones of RocketMQ 5.3.3 (a JDK and Maven are needed), the others are stores
of lakelog. All processes of the copies are counted, and none of the masters. PSS is memory with
shared pages divided by those who share them, USS without shared pages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import attrs
import psutil

from lakelog.files.filesystem import RealFileSystem
from lakelog_daemon.status import read_status
from tests.replication.masterbroker import Broker, broker, free_ports

_TABLE: Final = "rocketmq.messages"
_MIB: Final = 1 << 20
_BODY: Final = bytes(1000)
_START_SECONDS: Final = 150.0
_SETTLING_SECONDS: Final = 10.0


class LakelogLoad:
    """A lakelog master in a separate process."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.source = f"{name}=127.0.0.1:{free_ports(1)[0]}"
        command = [sys.executable, "-m", "tests.bench.replication.master", str(folder / name)]
        self._process = subprocess.Popen(
            [*command, self.source.rpartition(":")[2]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def load(self, rate: int) -> None:
        """Put ``rate`` messages per second from now on."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{rate}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Close the store."""
        self._process.communicate(timeout=_START_SECONDS)


class BrokerLoad:
    """A real broker, and a thread that sends to it."""

    def __init__(self, name: str, master: Broker) -> None:
        self.name = name
        self.source = f"{name}={master.slaves},{master.client}"
        self._master = master
        self._rate, self._over = 0, Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def load(self, rate: int) -> None:
        """Send ``rate`` messages per second from now on, or as many as possible."""
        self._rate = rate

    def _run(self) -> None:
        due, sent = time.monotonic(), 0
        while not self._over.wait(max(0.0, due - time.monotonic())):
            rate = self._rate
            if not rate:
                due = time.monotonic() + 0.1
                continue
            self._master.send("orders", _BODY, sent % 4)
            sent += 1
            due = max(due + 1 / rate, time.monotonic() - 1)

    def close(self) -> None:
        """Stop sending."""
        self._over.set()
        self._thread.join()


@attrs.frozen
class Usage:
    """One process during a window: memory at its end, CPU as a percentage of one core."""

    kind: str
    pss_mib: float
    uss_mib: float
    cpu_percent: float


@contextmanager
def copying(folder: Path, lake: Path, sources: Sequence[str], more: Sequence[str]) -> Iterator[int]:
    """Run ``lakelog serve`` with copies of all masters; yields its process id."""
    masters = json.dumps(list(sources))
    command = [
        *(sys.executable, "-m", "lakelog", "serve", str(folder), "--set", "replicator=rocketmq-ha"),
        *("--set", "rocketmq-ha.role=slave", "--set", f"rocketmq-ha.masters={masters}"),
        *("--set", "rocketmq-ha.vouch=received", "--set", f"segment_size_bytes={1 << 24}"),
        *("--set", 'followers=["lake"]', "--set", f"lake.to=iceberg:{lake}"),
        *("--set", f"lake.options={json.dumps(['--table', _TABLE, *more])}"),
    ]
    with (folder.parent / "copies.out").open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(_START_SECONDS)


def kind_of(process: psutil.Process) -> str:
    """Return the kind of a process of the tree; a child process has the kind of its parent."""
    known = {"serve": "supervisor", "replicate": "copy", "dispatch": "landing"}
    for each in (process, *process.parents()):
        words = each.cmdline()
        if "lakelog" in words:
            return next((kind for word, kind in known.items() if word in words), "other")
    return "other"


def window(pid: int, seconds: float) -> list[Usage]:
    """Measure ``pid`` and its descendants for ``seconds``, without those that end meanwhile."""
    root = psutil.Process(pid)
    before: dict[psutil.Process, tuple[str, float]] = {}
    for each in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # also raised for a zombie
            before[each] = (kind_of(each), sum(each.cpu_times()[:2]))
    begun = time.monotonic()
    time.sleep(seconds)
    took, found = time.monotonic() - begun, []
    for each, (kind, cpu) in before.items():
        with suppress(psutil.NoSuchProcess):
            used = (sum(each.cpu_times()[:2]) - cpu) / took * 100
            memory = each.memory_full_info()
            found.append(Usage(kind, memory.pss / _MIB, memory.uss / _MIB, used))
    return found


def summed(usages: Sequence[Usage]) -> Mapping[str, Mapping[str, float]]:
    """Return the number of processes and the mean figures, by kind of process."""
    rows = {}
    for kind in sorted({each.kind for each in usages}):
        of = [each for each in usages if each.kind == kind]
        means = {
            name: round(sum(getattr(each, name) for each in of) / len(of), 2)
            for name in ("pss_mib", "uss_mib", "cpu_percent")
        }
        rows[kind] = {"processes": len(of), **means}
    return rows


def positions(store: Path) -> tuple[int, int]:
    """Return the durable end of a copy and its landed position; zeros without a status."""
    found: dict[str, Any] = read_status(RealFileSystem(), store) or {}
    end = int(found.get("positions", {}).get("flushed", 0))
    behind = found.get("lags", {}).get("followers", {})
    return end, end - max(behind.values()) if behind else 0


def until(done: Callable[[], bool]) -> float:
    """Wait for a condition; return the seconds waited."""
    begun = time.monotonic()
    while not done():
        if time.monotonic() - begun > _START_SECONDS:
            raise TimeoutError("it did not happen in time")
        time.sleep(0.2)
    return time.monotonic() - begun


def has_landed(folder: Path, names: Sequence[str]) -> bool:
    """Whether all durable bytes of the copies have landed, according to their pins."""
    found = [positions(folder / name) for name in names]
    return all(end and end - landed < 4096 for end, landed in found)


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Start masters and copies, and measure them idle and under load."""
    folder = home / "copies"
    with ExitStack() as stack:
        loads: list[LakelogLoad | BrokerLoad] = []
        for number in range(options.masters):
            name = f"master-{number}"
            if number < options.brokers:
                made = stack.enter_context(
                    broker(home / name, brokerName=name, mappedFileSizeCommitLog=1 << 24)
                )
                loads.append(BrokerLoad(name, made))
            else:
                loads.append(LakelogLoad(name, home))
            stack.callback(loads[-1].close)
        names = [each.name for each in loads]
        sources = [each.source for each in loads]
        pid = stack.enter_context(copying(folder, home / "lake", sources, options.lake))
        for each in loads:
            each.load(20)
        until(lambda: all(end for end, _ in (positions(folder / each) for each in names)))
        for each in loads:
            each.load(0)
        until(lambda: has_landed(folder, names))
        time.sleep(_SETTLING_SECONDS)
        idle = window(pid, options.seconds)
        for each in loads:
            each.load(options.rate)
        time.sleep(_SETTLING_SECONDS)
        before = [positions(folder / each) for each in names]
        busy = window(pid, options.seconds)
        after = [positions(folder / each) for each in names]
        for each in loads:
            each.load(0)
        drained = until(lambda: has_landed(folder, names))
    return {
        "idle": summed(idle),
        "busy": summed(busy),
        "copied_mb_s": round(_grown(before, after, 0) / options.seconds / 1e6, 2),
        "landed_mb_s": round(_grown(before, after, 1) / options.seconds / 1e6, 2),
        "behind_mb": [round((end - landed) / 1e6, 2) for end, landed in after],
        "drained_s": round(drained, 1),
    }


def _grown(before: Sequence[tuple[int, int]], after: Sequence[tuple[int, int]], at: int) -> int:
    return sum(new[at] - old[at] for old, new in zip(before, after, strict=True))


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.replication", description=__doc__)
    parser.add_argument("--masters", type=int, default=8)
    parser.add_argument("--brokers", type=int, default=0, help="so many of them are real brokers")
    parser.add_argument("--rate", type=int, default=200, help="messages of 1 KB per second of each")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each window")
    parser.add_argument("--dir", type=Path, help="a folder on the disk to use")
    parser.add_argument("lake", nargs="*", help="further options of lakelog dispatch, behind --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as home:
        print(json.dumps(measure(options, Path(home)), indent=1))


if __name__ == "__main__":
    main()
