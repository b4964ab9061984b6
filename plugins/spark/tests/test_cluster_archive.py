"""A standalone cluster reads an archive in S3: the store is gone, and nothing is mounted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import lakelog
from lakelog_archive.archive import Archive
from lakelog_archive.lazy import place_at
from plugins.lake.tests.remote import servers
from plugins.lake.tests.stores import expected_rows, filled
from plugins.spark.tests.clusters import run, standalone

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
KEYS = ("topic", "queue_id", "queue_offset", "physical_offset")


def test_a_cluster_reads_an_archive_in_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path / "store", 600)
    uuid = json.loads((path / "lakelog" / "store.json").read_text())["uuid"]
    url = f"s3://{servers.BUCKET}/old/{uuid}"
    with servers.aws() as aws:
        for name, value in aws.environment.items():
            monkeypatch.setenv(name, value)
        segments = sorted((path / "commitlog").iterdir())[:-1]
        archive = Archive(place_at(url))
        for segment in segments:
            archive.keep(segment, int(segment.name))
        end = int(segments[-1].name) + segments[-1].stat().st_size
        with lakelog.open(path, mode="read") as store:
            rows = [
                [each[key] for key in KEYS] for each in expected_rows(store.scan(None, end), uuid)
            ]
        shutil.rmtree(path)

        with standalone(tmp_path) as cluster:
            given = {"master": cluster.master, "url": url, "folder": str(tmp_path / "driver")}
            said = json.loads(run("-m", "plugins.spark.tests.cluster_driver", json.dumps(given)))
    assert len(rows) > 300
    assert said["partitions"] == len(segments)
    assert len(said["executors"]) == 2
    assert said["read"] == said["table"] == sorted(rows)
    assert said["filtered"] == sum(row[0] == "topic-1" and row[2] < 5 for row in rows)
