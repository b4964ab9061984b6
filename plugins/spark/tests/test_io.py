"""Who reads how much: the driver next to nothing, executors their ranges, a filter far less."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lakelog
from plugins.lake.tests.stores import filled
from plugins.spark.tests.clusters import run, standalone

SMALL = "small"
MESSAGES = 200_000
BODY_BYTES = 1000
RUN = 4_000
OF_SMALL = 40
"""In each run; they stand together, as what one producer sends at once does."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """About 230 MB in segments of 64 MiB."""
    path = tmp_path / "store"
    body = bytes(range(250)) * (BODY_BYTES // 250)
    with lakelog.open(path, flush="none", segment_size_bytes="64MiB") as made:
        for _ in range(MESSAGES // RUN):
            for topic, count in ((SMALL, OF_SMALL), ("large", RUN - OF_SMALL)):
                made.put_columns(topic, [body] * count, queue_ids=0)
    return path


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_bytes_from_the_disk(store: Path, tmp_path: Path) -> None:
    (logs := tmp_path / "cluster").mkdir()
    with lakelog.open(store, mode="read") as opened:
        log_bytes = opened.max_offset - opened.min_offset
    filled(tmp_path / "warm", 100)
    with standalone(logs) as cluster:
        given = {
            "master": cluster.master,
            "workers": cluster.workers,
            "store": str(store),
            "warm": str(tmp_path / "warm"),
            "small": SMALL,
        }
        said = json.loads(run("-m", "plugins.spark.tests.io_driver", json.dumps(given)))
    whole, small = said["all"], said["small"]
    assert whole["rows"] == MESSAGES
    assert small["rows"] == MESSAGES // RUN * OF_SMALL
    # What the first read has mapped stays in the page cache.
    assert whole["workers"] > 0.7 * log_bytes, f"not all was counted: is this a disk? {said}"
    assert whole["driver"] < 0.01 * log_bytes, said
    assert whole["workers"] < 1.1 * log_bytes, said
    assert small["driver"] < 0.01 * log_bytes, said
    assert 0 < small["workers"] < 0.25 * log_bytes, said
