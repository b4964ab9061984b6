"""Runs one job in a separate process: warms up, measures, and counts the rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.bench.lake import landing, raw
from tests.bench.lake.filling import ranges
from tests.bench.lake.job import Job, timed
from tests.bench.model import Sample


def run(job: Job) -> Sample:
    """Measure ``job``."""
    if job.by == "raw":
        return _raw(job)
    if job.by in ("processes", "tasks"):
        return landing.run(job)
    from tests.bench.lake import native

    return native.run(job)


def _raw(job: Job) -> Sample:
    with raw.Processes(job.cores) as processes:

        def write(source: str, name: str) -> int:
            store = Path(source)
            return processes.write(store, ranges(store, job.cores), Path(job.folder, name))

        for number in range(job.cores):  # so that each worker has done some work
            write(job.warm, f"warm-{number}")
        return timed(job, lambda: write(job.source, "table"))


def main(text: str) -> None:
    """Print figures as JSON."""
    print(json.dumps(run(Job(**json.loads(text)))))


if __name__ == "__main__":
    main(sys.argv[1])
