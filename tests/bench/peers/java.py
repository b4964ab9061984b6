"""The real RocketMQ store, measured by a Java program in a warmed-up JVM."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.bench.load import Load
from tests.bench.model import CannotRunError, Sample
from tests.oracle import java

NAME = "rocketmq"
SETTINGS = (
    "DefaultMessageStore 5.3.3, ASYNC_FLUSH, default files, heap 512 MiB, 2 s of warm-up; "
    "putMessage or putMessages (client encoding included); queues and index built meanwhile"
)


def run(load: Load, directory: Path) -> Sample:
    """Measure in a new JVM; its start and warm-up are not counted."""
    reason = java.missing()
    if reason:
        raise CannotRunError(reason)
    bench = partial(java.build_oracle().bench, directory, body=load.body_bytes, count=load.count)
    if load.batch_size:
        row = bench("batch", n=load.batch_size)
    else:
        row = bench("append", threads=load.threads)
    return {"rows_s": row["msgs_s"], "mb_s": row["mb_s"]}
