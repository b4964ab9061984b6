"""What is done about a job that was stopped."""

from __future__ import annotations

import os
from pathlib import Path

from lakelog.files import RealFileSystem
from lakelog_spark.writing.access import handing_over
from lakelog_spark.writing.handover import Handover
from lakelog_spark.writing.options import checked_job


def finish_write(store: str | os.PathLike[str], job_id: str, *, settings: str | None = None) -> int:
    """Append what is missing of a write that was stopped while its rows were appended.

    Needs no Spark. Nothing is appended twice.

    :returns: how many rows that were

    Raises :class:`~lakelog_spark.writing.errors.StagingLost` where no such rows are there.
    """
    path = Path(store).absolute()
    with handing_over(path, settings) as opened:
        return Handover(RealFileSystem.of_store(path), opened, checked_job(job_id)).run()
