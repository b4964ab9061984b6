"""One measurement in a separate process: its source, its sink, its program, and its result."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.bench.lake import workers
from tests.bench.lake.messages import BODY_BYTES
from tests.bench.model import CannotRunError, Column, Sample

COLUMNS: Final = (
    Column("rows_s", "rows/s"),
    Column("mb_s", "MB/s", ",.0f"),
    Column("cpu_mb_s", "MB/CPU s", ",.0f"),
    Column("worker_mb", "MB of a worker", ",.0f"),
    Column("start_s", "session s", ",.1f"),
)
WARM_ROWS: Final = 32_768
_PROGRAM: Final = "tests.bench.lake.program"


@dataclass(frozen=True)
class Job:
    """One measurement.

    :ivar by: ``raw``, ``processes`` (landing without Spark), ``tasks`` (landing by Spark); or
        ``source``, ``parquet`` or ``kafka``, which Spark reads and writes itself
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
    return call(_PROGRAM, json.dumps(asdict(job)), Path(job.folder))


def call(program: str, text: str, folder: Path) -> Sample:
    """Run ``program``; its errors are stored beside ``folder`` if it fails."""
    command = [sys.executable, "-m", program, text]
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
    cpu, begin = workers.cpu_seconds(), time.perf_counter()
    rows = work()
    seconds = time.perf_counter() - begin
    megabytes = rows * BODY_BYTES / 1e6
    if rows != job.rows:
        raise RuntimeError(f"{rows} rows came out of {job.rows}")
    return {
        "rows_s": rows / seconds,
        "mb_s": megabytes / seconds,
        "cpu_mb_s": megabytes / (workers.cpu_seconds() - cpu),
        "seconds": seconds,
        **workers.largest(),
    }
