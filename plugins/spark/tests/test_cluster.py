"""A standalone cluster, a master and two workers as processes: all that runs here runs there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakelog
from plugins.lake.tests.landing.tables import KEY, assert_exactly, keys_in, keys_of
from plugins.lake.tests.remote import servers
from plugins.lake.tests.stores import filled
from plugins.spark.tests.clusters import Cluster, bare_python, connect_server, run, standalone
from plugins.spark.tests.test_archived import moved

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.timeout(600)]
COUNT = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("store"), COUNT)


def drive(cluster: Cluster, store: Path, folder: Path, *kinds: str, **more: str) -> dict[str, Any]:
    given: dict[str, Any] = {"store": str(store), "folder": str(folder), **more}
    given |= {"master": cluster.master, "kinds": ["spark_iceberg", *kinds]}
    said = run("-m", "plugins.spark.tests.cluster_driver", json.dumps(given))
    return dict(json.loads(said))


def check(said: dict[str, Any], store: Path, folder: Path) -> None:
    keys = keys_of(store, "S")
    assert said["batch"]["rows"] == said["stream"] == len(keys) == COUNT
    assert said["batch"]["partitions"] > 2
    assert said["batch"]["filtered"] == sum(k[1] == "topic-1" and k[3] < 5 for k in keys)
    assert said["batch"]["by_key"] == 1
    assert len(said["executors"]) == 2
    for kind, count in said["landed"].items():
        assert count == COUNT
        if kind != "spark_iceberg":
            assert_exactly(kind, folder / kind, keys)
    table = read_catalog(folder / "lake")
    assert sorted(table) == keys


def read_catalog(warehouse: Path) -> list[tuple[Any, ...]]:
    from lakelog_lake.sinks.iceberg import sqlite_catalog

    return keys_in(sqlite_catalog(warehouse).load_table("rocketmq.messages").scan().to_arrow())


@pytest.mark.slow
def test_executors_without_lakelog_get_it(cluster: Cluster, store: Path, tmp_path: Path) -> None:
    said = drive(
        cluster, store, tmp_path, "delta", "parquet", python=str(bare_python(tmp_path / "bare"))
    )
    check(said, store, tmp_path)
    assert "lakelog.zip" in said["lakelog_from"]["file"]
    assert {"flush", "hash-index", "mmap", "lake"} <= set(said["lakelog_from"]["plugins"])


def test_executors_with_the_python_of_the_driver(
    cluster: Cluster, store: Path, tmp_path: Path
) -> None:
    said = drive(cluster, store, tmp_path)
    check(said, store, tmp_path)
    assert "lakelog.zip" not in said["lakelog_from"]["file"]


# --- an archive in S3: the store is gone, and nothing is mounted ---


@pytest.mark.slow
def test_a_cluster_reads_an_archive_in_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path / "store", 600)
    segments = len(list((path / "commitlog").iterdir())) - 1
    with servers.aws() as aws:
        for name, value in aws.environment.items():
            monkeypatch.setenv(name, value)
        url, found = moved(path, f"s3://{servers.BUCKET}/old")
        with standalone(tmp_path) as cluster:
            given = {"master": cluster.master, "url": url, "folder": str(tmp_path / "driver")}
            said = json.loads(run("-m", "plugins.spark.tests.cluster_driver", json.dumps(given)))
    rows = [[each[key] for key in KEY[1:]] for each in found]
    assert len(rows) > 300
    assert said["partitions"] == segments
    assert len(said["executors"]) == 2
    assert said["read"] == said["table"] == sorted(rows)
    assert said["filtered"] == sum(row[0] == "topic-1" and row[2] < 5 for row in rows)


# --- who reads how much: the driver next to nothing, executors their ranges, a filter far less ---

SMALL = "small"
MESSAGES = 200_000
BODY_BYTES = 1000
RUN = 4_000
OF_SMALL = 40
"""In each run; they stand together, as what one producer sends at once does."""


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """About 230 MB in segments of 64 MiB."""
    path = tmp_path / "large"
    body = bytes(range(250)) * (BODY_BYTES // 250)
    with lakelog.open(path, flush="none", segment_size_bytes="64MiB") as made:
        for _ in range(MESSAGES // RUN):
            for topic, count in ((SMALL, OF_SMALL), ("large", RUN - OF_SMALL)):
                made.put_columns(topic, [body] * count, queue_ids=0)
    return path


@pytest.mark.slow
def test_bytes_from_the_disk(large: Path, tmp_path: Path) -> None:
    (logs := tmp_path / "cluster").mkdir()
    with lakelog.open(large, mode="read") as opened:
        log_bytes = opened.max_offset - opened.min_offset
    filled(tmp_path / "warm", 100)
    with standalone(logs) as cluster:
        given = {
            "master": cluster.master,
            "workers": cluster.workers,
            "store": str(large),
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


# --- the batch reader behind Spark Connect: the driver has no JVM, and needs no Java ---


@pytest.mark.slow
@pytest.mark.parametrize("ship", [False, True])
def test_a_store_is_read_by_a_server(tmp_path: Path, *, ship: bool) -> None:
    """With ``ship`` the server's Python lacks lakelog."""
    filled(tmp_path / "store", 200)
    python = str(bare_python(tmp_path / "bare")) if ship else sys.executable
    with connect_server(tmp_path, python) as remote:
        given = {"remote": remote, "store": str(tmp_path / "store"), "ship": ship}
        text = run("-m", "plugins.spark.tests.connect_driver", json.dumps(given))
    said, keys = json.loads(text), keys_of(tmp_path / "store", "S")
    assert said["session"] == "pyspark.sql.connect.session"
    assert said["offsets"] == sorted(each[4] for each in keys)
    assert said["rows"] == len(keys)
    assert said["filtered"] == sum(each[1] == "topic-1" and each[3] < 5 for each in keys)
    assert said["by_key"] == 1
