"""Landing as by `lakelog dispatch --once`, by plain processes or by Spark's tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

from lakelog_lake.landing.dispatcher import Landed, LandingDispatcher, LandingSource
from lakelog_lake.landing.runner import until_done
from lakelog_lake.landing.targets import TableSpec, targets_for
from lakelog_lake.tasks import engines
from lakelog_lake.tasks.ranges import TaskLimits
from tests.bench.lake.job import Job, timed

if TYPE_CHECKING:
    from lakelog_lake.tasks.engines import Engine

_WARM_TASK_BYTES: Final = 2 << 20  # so that every process or core gets a task


def run(job: Job) -> dict[str, float]:
    """Land the store in a new table."""
    begin = time.perf_counter()
    with _engine(job) as engine:
        started = {} if job.by == "processes" else {"start_s": time.perf_counter() - begin}
        _land(job, engine, job.warm, TaskLimits(task_bytes=_WARM_TASK_BYTES))
        bounds = TaskLimits(at_once=job.cores)
        return timed(job, lambda: _land(job, engine, job.source, bounds)) | started


def _land(job: Job, engine: Engine, store: str, bounds: TaskLimits) -> int:
    source = LandingSource(Path(store), "bench")
    to = Path(job.folder, Path(store).name)
    lander = LandingDispatcher(source, targets_for(TableSpec(f"{job.sink}:{to}")), engine, bounds)
    passes: list[Landed] = []
    until_done(lander.one_pass, Event(), passes.append)
    lander.finish()
    return sum(each.rows for each in passes)


@contextmanager
def _engine(job: Job) -> Iterator[Engine]:
    if job.by == "processes":
        with engines.processes(job.cores) as run:
            yield run
        return
    from lakelog_spark.engine import spark
    from lakelog_spark.sessions.local import session

    started = session(master=f"local[{job.cores}]")
    try:
        yield spark(started)
    finally:
        started.stop()
