"""One measurement in a separate process: its source, its sink, its work, and its result.

`python -m` runs one job: it warms up, measures, and counts the rows.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

import psutil

from tests.bench import running
from tests.bench.lake.messages import BODY_BYTES, ranges
from tests.bench.model import CannotRunError, Column, Sample

if TYPE_CHECKING:
    from lakelog_lake.tasks.engines import Engine

COLUMNS: Final = (
    Column("rows_s", "rows/s"),
    Column("mb_s", "MB/s", ",.0f"),
    Column("cpu_mb_s", "MB/CPU s", ",.0f"),
    Column("worker_mb", "MB of a worker", ",.0f"),
    Column("start_s", "session s", ",.1f"),
)
WARM_ROWS: Final = 32_768
_WARM_TASK_BYTES: Final = 2 << 20  # so that every process or core gets a task
_PEAK: Final = "VmHWM:"


@dataclass(frozen=True)
class Job:
    """One measurement.

    :ivar by: ``raw``, ``processes`` (landing without Spark), ``tasks`` (landing by Spark),
        ``hand`` (columns, appended by pyiceberg or deltalake); or ``source``, ``parquet`` or
        ``kafka``, which Spark reads and writes itself
    :ivar sink: ``noop``, ``parquet``, ``iceberg`` or ``delta``
    :ivar cores: number of processes, or of concurrent tasks
    :ivar source: the store, the folder of Parquet files, or the broker's address
    :ivar warm: a small source of the same kind, for the warm-up
    :ivar folder: an empty folder for this job
    """

    by: str
    sink: str
    cores: int
    rows: int
    source: str = ""
    warm: str = ""
    folder: str = ""


def spawn(job: Job) -> Sample:
    """Run in a new process and wait for its figures."""
    return call(__name__, json.dumps(asdict(job)), Path(job.folder))


def call(program: str, text: str, folder: Path) -> Sample:
    """Run ``program``; its errors are stored beside ``folder`` if it fails."""
    command = running.python(program, text)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = folder.parent / "errors.txt"
        errors.write_text(f"{text}\n{done.stdout}\n{done.stderr}", encoding="utf-8")
        raise CannotRunError(_reason(done.stderr))
    sample: Sample = json.loads(done.stdout.splitlines()[-1])
    return sample


def _reason(stderr: str) -> str:
    """Return the last line that names an error; stack traces of Java follow it."""
    lines = [each.strip() for each in stderr.splitlines() if each.strip()]
    named = [each for each in lines if "Error" in each.split(":")[0] and not each.startswith("at ")]
    return (named or lines or ["it died"])[-1].rpartition("Error: ")[2][:200]


def timed(job: Job, work: Callable[[], int]) -> dict[str, float]:
    """Measure ``work``, which returns the number of rows.

    Returns rows and bytes of bodies per second, and per CPU second of all processes. The worker
    processes must exist before and after.
    """
    cpu, begin = cpu_seconds(), time.perf_counter()
    rows = work()
    seconds = time.perf_counter() - begin
    megabytes = rows * BODY_BYTES / 1e6
    if rows != job.rows:
        raise RuntimeError(f"{rows} rows came out of {job.rows}")
    return {
        "rows_s": rows / seconds,
        "mb_s": megabytes / seconds,
        "cpu_mb_s": megabytes / (cpu_seconds() - cpu),
        "cpu_s": cpu_seconds() - cpu,
        "seconds": seconds,
        "peak_mb": sum(_peak_mb(each.pid) for each in _processes()),
        **_largest(),
    }


def cpu_seconds() -> float:
    """Return the CPU seconds of all live processes, user and system; includes a JVM's compiler."""
    total = 0.0
    for each in _processes():
        with suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            total += times.user + times.system
    return total


def _processes() -> list[psutil.Process]:
    return [psutil.Process(), *psutil.Process().children(recursive=True)]


def _largest() -> dict[str, float]:
    """Return the peak memory of the largest Python child process, in MB; empty without one."""
    found = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, FileNotFoundError):
            if each.name().startswith("python"):
                found.append(_peak_mb(each.pid))
    return {"worker_mb": max(found)} if found else {}


def _peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    peak = next((each for each in lines if each.startswith(_PEAK)), f"{_PEAK} 0 kB")
    return int(peak.split()[1]) * 1024 / 1e6


def run(job: Job) -> Sample:
    """Measure ``job``."""
    if job.by == "raw":
        return _raw(job)
    if job.by in ("processes", "tasks"):
        return _landed(job) | _files(job)
    if job.by == "hand":
        from tests.bench.lake import hand

        hand.append(Path(job.warm), job.sink, Path(job.folder, "warm"))
        table = Path(job.folder, Path(job.source).name)
        return timed(job, lambda: hand.append(Path(job.source), job.sink, table)) | _files(job)
    from tests.bench.lake import native

    return native.run(job)


def _raw(job: Job) -> Sample:
    from tests.bench.lake import raw

    with raw.Processes(job.cores) as processes:

        def write(source: str, name: str) -> int:
            store = Path(source)
            return processes.write(store, ranges(store, job.cores), Path(job.folder, name))

        for number in range(job.cores):  # so that each worker has done some work
            write(job.warm, f"warm-{number}")
        return timed(job, lambda: write(job.source, "table"))


def _landed(job: Job) -> dict[str, float]:
    """Land the store in a new table, as `lakelog dispatch --once` does."""
    begin = time.perf_counter()
    with _engine(job) as engine:
        started = {} if job.by == "processes" else {"start_s": time.perf_counter() - begin}
        _land(job, engine, job.warm, warms=True)
        return timed(job, lambda: _land(job, engine, job.source)) | started


def _files(job: Job) -> dict[str, float]:
    """Return the number of data files, and their median size."""
    found = Path(job.folder, Path(job.source).name).rglob("*.parquet")
    sizes = [each.stat().st_size / 1e6 for each in found]
    return {"files": len(sizes), "file_mb": statistics.median(sizes)}


def _land(job: Job, engine: Engine, store: str, *, warms: bool = False) -> int:
    from lakelog_lake.landing.dispatcher import Landed, LandingDispatcher, until_done
    from lakelog_lake.landing.targets import TableSpec, targets_for
    from lakelog_lake.tasks.task import LandingSource, TaskLimits

    bounds = TaskLimits(at_once=job.cores)
    if warms:
        bounds = TaskLimits(task_bytes=_WARM_TASK_BYTES, file_bytes=_WARM_TASK_BYTES)
    source = LandingSource(Path(store), "bench")
    to = Path(job.folder, Path(store).name)
    lander = LandingDispatcher(source, targets_for(TableSpec(f"{job.sink}:{to}")), engine, bounds)
    passes: list[Landed] = []
    until_done(lander.one_pass, Event(), passes.append)
    lander.finish()
    return sum(each.rows for each in passes)


@contextmanager
def _engine(job: Job) -> Iterator[Engine]:
    from lakelog_lake.tasks import engines

    if job.by == "processes":
        with engines.processes(job.cores) as run:
            yield run
        return
    from lakelog_spark.engine import spark
    from lakelog_spark.sessions import session

    started = session(master=f"local[{job.cores}]")
    try:
        yield spark(started)
    finally:
        started.stop()


if __name__ == "__main__":
    print(json.dumps(run(Job(**json.loads(sys.argv[1])))))
