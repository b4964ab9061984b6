"""Measures puts that wait for a copy; `python -m` is the lakelog master."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import lakelog
from lakelog import Message, PutStatus, Store
from tests.bench import running
from tests.bench.content import QUEUES, TAGS, TOPIC, body, key
from tests.bench.model import CannotRunError, Sample
from tests.bench.replication import sides
from tests.replication.masterbroker import free_ports

BODY_BYTES: Final = 1024
THREADS: Final = (1, 16)
_PATIENCE_S: Final = 60.0


@dataclass(frozen=True)
class Puts:
    """The parameters of a measurement.

    :ivar is_durable: whether a put also waits for the master's sync
    """

    is_durable: bool
    warm_ms: int
    measured_ms: int


def real(what: Puts, directory: Path) -> Sample:
    """Measure the store of RocketMQ in its own process, with a real slave."""
    oracle = running.real_store()
    (port,) = free_ports(1)
    flush = "SYNC" if what.is_durable else "ASYNC"
    arguments = ["--mode", "copies", "--body", str(BODY_BYTES), "--flush", flush]
    arguments += ["--warm-ms", str(what.warm_ms), "--ms", str(what.measured_ms)]
    options = {
        "brokerRole": "SYNC_MASTER",
        "inSyncReplicas": "2",
        "haListenPort": str(port),
        "mappedFileSizeCommitLog": str(sides.SEGMENT_BYTES),
    }
    command = oracle.command("Bench", directory / "master", arguments, options)
    with _started(command, directory / "errors") as master:
        running.await_port(port, lambda: master.poll() is None)
        settings = {"flushDiskType": f"{flush}_FLUSH"}
        address = sides.local(port)
        with sides.real_slave(directory / "slave", address, **settings):
            return _figures(master, directory / "errors")


def ours(what: Puts, directory: Path) -> Sample:
    """Measure a store of lakelog, with a slave of lakelog."""
    (port,) = free_ports(1)
    command = running.python(__name__, directory / "master", port, json.dumps(asdict(what)))
    with _started(command, directory / "errors") as master:
        running.await_port(port, lambda: master.poll() is None)
        vouch = "received" if what.is_durable else "age"  # synced bytes count, or written ones
        more = ("--counts", "--vouch", vouch)
        with sides.our_slave(directory / "slave", sides.local(port), *more):
            return _figures(master, directory / "errors")


@contextmanager
def _started(command: list[str], errors: Path) -> Iterator[subprocess.Popen[str]]:
    with errors.open("ab") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=out, text=True
        )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _figures(master: subprocess.Popen[str], errors: Path) -> Sample:
    told, _ = master.communicate(timeout=2 * _PATIENCE_S)
    if master.returncode:
        lines = errors.read_text(errors="replace").strip().splitlines() or ["it died"]
        raise CannotRunError(lines[-1][:200])
    figures: Sample = json.loads(told.splitlines()[-1])
    return {name: each for name, each in figures.items() if name.startswith(("p50", "p99", "puts"))}


def _main(path: str, port: str, text: str) -> None:
    what = Puts(**json.loads(text))
    section: dict[str, Any] = {"port": int(port), "in_sync_replicas": 2, "slave_timeout_ms": 10_000}
    if not what.is_durable:
        section["send"] = "written"
    with lakelog.open(
        path,
        segment_size_bytes=sides.SEGMENT_BYTES,
        flush="group-commit" if what.is_durable else "timed",
        replicator="rocketmq-ha",
        on_late="return",
        rocketmq_ha=section,
    ) as store:
        putting = _Putting(store)
        putting.await_copy()
        figures: dict[str, float] = {}
        for threads in THREADS:
            putting.measure(threads, what.warm_ms)
            figures |= putting.measure(threads, what.measured_ms)
        print(json.dumps(figures), flush=True)


class _Putting:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._body = body(BODY_BYTES)

    def await_copy(self) -> None:
        """Put until a slave has acknowledged a put."""
        deadline = time.monotonic() + _PATIENCE_S
        while self._put(0) is not PutStatus.PUT_OK:
            if time.monotonic() > deadline:
                raise RuntimeError("no slave came")
            time.sleep(0.01)

    def measure(self, threads: int, measured_ms: int) -> dict[str, float]:
        """Put from ``threads`` threads for ``measured_ms``."""
        begun = time.perf_counter()
        end_ns = time.perf_counter_ns() + measured_ms * 1_000_000
        with ThreadPoolExecutor(threads) as pool:
            each = list(pool.map(lambda first: self._some(first, threads, end_ns), range(threads)))
        seconds = time.perf_counter() - begun
        took = sorted(one for some in each for one in some)
        last = len(took) - 1
        return {
            f"p50_us_{threads}": took[last // 2] / 1e3,
            f"p99_us_{threads}": took[int(last * 0.99)] / 1e3,
            f"puts_s_{threads}": len(took) / seconds,
        }

    def _some(self, first: int, step: int, end_ns: int) -> list[int]:
        took, at, begun = [], first, time.perf_counter_ns()
        while begun < end_ns:
            if self._put(at) is not PutStatus.PUT_OK:
                raise RuntimeError("a put was not copied")
            at += step
            after = time.perf_counter_ns()
            took.append(after - begun)
            begun = after
        return took

    def _put(self, at: int) -> PutStatus:
        message = Message(TOPIC, self._body, tags=TAGS, keys=key(at), queue_id=at % QUEUES)
        return self._store.put(message).status


if __name__ == "__main__":
    _main(*sys.argv[1:])
