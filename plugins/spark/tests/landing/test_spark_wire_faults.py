"""Spark and a process land in one table of an object store, with faults on the wire.

Spark counts the rows in the end: those of Iceberg through its catalog, those of Delta in a copy of
the whole folder.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from attrs import evolve

from lakelog_spark.engine import spark as by_spark
from lakelog_spark.sessions import ICEBERG, package_for
from plugins.lake.tests.landing.tables import keys_of
from plugins.lake.tests.remote import servers
from plugins.lake.tests.remote.somewhere import Somewhere
from plugins.lake.tests.remote.test_wire_faults import ALL, Rounds
from plugins.lake.tests.remote.test_wire_faults import run as run_rounds
from plugins.spark.tests.clusters import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = int(os.environ.get("SPARK_WIRE_ROUNDS", "3"))


@pytest.mark.slow
@pytest.mark.timeout(600 + 60 * ROUNDS)
@pytest.mark.parametrize("place", ALL, indirect=True)
def test_spark_and_a_process_land_in_one_table(
    place: Somewhere, tmp_path: Path, aws: servers.Aws, spark: SparkSession
) -> None:
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    before = set(jobs(None))
    run_rounds(Rounds(place, tmp_path / "s", aws, by_spark(spark)), ROUNDS)
    assert set(jobs(None)) - before
    given = of_delta(place, aws, tmp_path) if place.kind == "delta" else of_iceberg(place)
    program = ("-m", "plugins.spark.tests.landing.program_count")
    said = run(*program, json.dumps(given), environ=aws.environment)
    assert json.loads(said) == [len(keys_of(tmp_path / "s", "S"))] * 2


def of_delta(place: Somewhere, aws: servers.Aws, folder: Path) -> dict[str, Any]:
    """Its log names files relative to the folder."""
    for key in aws.objects(place.prefix):
        if not key.endswith("/"):  # Arrow makes such for folders
            (copy := folder / key).parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(aws.content(key))
    return {"delta": str(folder / place.prefix)}


def of_iceberg(place: Somewhere) -> dict[str, Any]:
    """Java's names of what pyiceberg was given; the SDK of AWS is a package of 65 MB."""
    runtime, *_ = package_for(pyspark.__version__, ICEBERG).jars
    storage, catalog = place.storage, f"spark.sql.catalog.{place.place}"
    uri = storage.get("uri", "").replace("sqlite:///", "jdbc:sqlite:")
    kinds = {
        "glue": {"type": "glue", "glue.endpoint": storage.get("glue.endpoint", "")},
        "rest": {"type": "rest", "uri": uri},
        "sql": {"type": "jdbc", "uri": uri, "jdbc.schema-version": "V1"},
    }
    given = {
        "warehouse": f"s3://{servers.BUCKET}",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": storage["s3.endpoint"],
        "s3.path-style-access": "true",
        "s3.access-key-id": storage["s3.access-key-id"],
        "s3.secret-access-key": storage["s3.secret-access-key"],
        "client.region": storage["client.region"],
        "cache-enabled": "false",
        **kinds[storage["type"]],
    }
    config = {f"{catalog}.{name}": value for name, value in given.items()}
    config |= {catalog: "org.apache.iceberg.spark.SparkCatalog"}
    sdk = evolve(runtime, name="iceberg-aws-bundle")
    config |= {"spark.jars.packages": sdk.coordinates}
    return {"table": f"{place.place}.{place.table}", "config": config}
