"""A standalone cluster, a master and two workers as processes: all that runs here runs there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plugins.lake.tests.landing.tables import assert_exactly, keys_of
from plugins.lake.tests.stores import filled
from plugins.spark.tests.clusters import Cluster, bare_python, run, standalone

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.timeout(600)]
COUNT = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("store"), COUNT)


def drive(cluster: Cluster, store: Path, folder: Path, **more: str) -> dict[str, Any]:
    given = {"master": cluster.master, "store": str(store), "folder": str(folder), **more}
    said = run("-m", "plugins.spark.tests.cluster_driver", json.dumps(given))
    return dict(json.loads(said))


def check(said: dict[str, Any], store: Path, folder: Path) -> None:
    keys = keys_of(store, "S")
    assert said["batch"]["rows"] == said["stream"] == len(keys) == COUNT
    assert said["batch"]["partitions"] > 2
    assert said["batch"]["filtered"] == sum(k[1] == "topic-1" and k[3] < 5 for k in keys)
    assert said["batch"]["by_key"] == 1
    assert len(said["executors"]) == 2
    assert said["landed"] == {"spark_iceberg": COUNT, "delta": COUNT, "parquet": COUNT}
    for kind in ("delta", "parquet"):
        assert_exactly(kind, folder / kind, keys)
    table = read_catalog(folder / "lake")
    assert sorted(table) == keys


def read_catalog(warehouse: Path) -> list[tuple[Any, ...]]:
    from lakelog_lake.sinks.iceberg import sqlite_catalog

    names = ("store", "topic", "queue_id", "queue_offset", "physical_offset")
    table = sqlite_catalog(warehouse).load_table("rocketmq.messages").scan().to_arrow()
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


@pytest.mark.slow
def test_executors_without_lakelog_get_it(cluster: Cluster, store: Path, tmp_path: Path) -> None:
    said = drive(cluster, store, tmp_path, python=str(bare_python(tmp_path / "bare")))
    check(said, store, tmp_path)
    assert "lakelog.zip" in said["lakelog_from"]["file"]
    assert {"flush", "hash-index", "mmap", "spark"} <= set(said["lakelog_from"]["plugins"])


def test_executors_with_the_python_of_the_driver(
    cluster: Cluster, store: Path, tmp_path: Path
) -> None:
    said = drive(cluster, store, tmp_path)
    check(said, store, tmp_path)
    assert "lakelog.zip" not in said["lakelog_from"]["file"]
