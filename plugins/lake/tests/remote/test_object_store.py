"""Tables in S3, by deltalake and by the catalogs of pyiceberg."""

from __future__ import annotations

import json
import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import attrs
import pytest
import typer.testing

from lakelog import Message
from lakelog_lake.bodies.json import Json
from lakelog_lake.errors import Conflict, NotWritten, TemporaryError
from lakelog_lake.landing.dispatcher import Landed
from lakelog_lake.sinks.base import Sink
from lakelog_lake.sinks.delta import remote_folder
from lakelog_lake.tasks.engines import processes
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from plugins.lake.tests.landing.passes import land
from plugins.lake.tests.landing.table_specs import Even, land_spec
from plugins.lake.tests.landing.tables import keys_of, land_all
from plugins.lake.tests.landing.test_cli import LAKELOG, identity, run
from plugins.lake.tests.maintenance.test_verify_parsed import FIRST, put
from plugins.lake.tests.remote.servers import BUCKET, Aws
from plugins.lake.tests.remote.somewhere import Somewhere
from plugins.lake.tests.stores import filled, open_small

TWO = ["delta", "sql"]
SAMPLES = ["delta", pytest.param("sql", marks=pytest.mark.slow)]
BOUNDS = TaskLimits(pass_bytes=80 << 10, task_bytes=40 << 10)
"""Few requests; a store of 300 messages lands in two passes."""
PLACES = [*SAMPLES, "glue", pytest.param("rest", marks=pytest.mark.java)]


def lakelog_runs(*arguments: object) -> typer.testing.Result:
    done = run(*arguments)
    assert done.exit_code == 0, done.output + done.stderr
    return done


def snapshots(place: Somewhere, aws: Aws) -> set[str]:
    return {each for each in aws.objects(place.prefix) if "/snap-" in each}


@pytest.mark.sample(2)
@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_messages_land_and_are_cared_for(place: Somewhere, store_path: Path, aws: Aws) -> None:
    to, options = ("--to", place.to), place.options
    lakelog_runs("dispatch", store_path, *to, "--once", *options)
    filled(store_path, 50)
    lakelog_runs("dispatch", store_path, *to, "--once", *options)
    keys = keys_of(store_path, identity(store_path))
    assert len(keys) == 350
    place.assert_exactly(keys)
    assert "equal" in lakelog_runs("lake", "verify", store_path, *to, *options).stdout
    lists = snapshots(place, aws)
    lakelog_runs("lake", "expire", place.to, "--older-than", "0s", *options)
    if place.kind == "catalog":
        assert snapshots(place, aws) < lists
        assert len(place.iceberg().metadata.snapshots) == 1
    place.assert_exactly(keys)


@pytest.mark.parametrize("place", ["delta"], indirect=True)
def test_topics_of_any_name(place: Somewhere, tmp_path: Path) -> None:
    """Folders of partitions have their names percent-encoded, and so have paths in Delta's log."""
    with open_small(tmp_path / "s") as store:
        store.put_batch([Message(name, b"1") for name in ("a%b", "%DLQ%g", "a|b", "a=b", "ü")])
        store.put(Message("|" * 127, b"1"))
    lakelog_runs("dispatch", tmp_path / "s", "--to", place.to, "--once", *place.options)
    place.assert_exactly(keys_of(tmp_path / "s", identity(tmp_path / "s")))


@pytest.mark.parametrize("place", ["glue"], indirect=True)
def test_commits_let_history_go_in_any_catalog(place: Somewhere, store_path: Path) -> None:
    command = ("dispatch", store_path, "--to", place.to, "--once", *place.options)
    for _ in range(2):
        lakelog_runs(*command, "--history", "1")
        filled(store_path, 20)
    lakelog_runs(*command)
    assert len(place.iceberg().metadata.snapshots) == 1
    place.assert_exactly(keys_of(store_path, identity(store_path)))


@pytest.mark.parametrize("place", ["delta"], indirect=True)
def test_the_environment_is_enough(
    place: Somewhere, store_path: Path, aws: Aws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for key, value in aws.environment.items():
        monkeypatch.setenv(key, value)
    lakelog_runs("dispatch", store_path, "--to", place.to, "--once")
    place.assert_exactly(keys_of(store_path, identity(store_path)))
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__URI", f"sqlite:///{tmp_path / 'mine.db'}")
    monkeypatch.setenv("PYICEBERG_CATALOG__MINE__WAREHOUSE", f"s3://{BUCKET}/{place.prefix}/mine")
    lakelog_runs("dispatch", store_path, "--to", "catalog:mine", "--once")
    verified = lakelog_runs("lake", "verify", store_path, "--to", "catalog:mine").stdout
    assert "mine.lakelog.messages: equal" in verified
    monkeypatch.setenv("PYICEBERG_CATALOG__DEFAULT__URI", f"sqlite:///{tmp_path / 'other.db'}")
    warehouse = f"s3://{BUCKET}/{place.prefix}/other"
    export = ("export", store_path, "--to", warehouse, "--format", "iceberg", "--topic")
    lakelog_runs(*export, "topic-1")
    again = run(*export, "topic-2")
    assert again.exit_code == 2
    assert "a new folder or table" in again.stderr
    assert aws.objects(f"{place.prefix}/other/lakelog/messages/data/")


@pytest.mark.parametrize("place", SAMPLES, indirect=True)
def test_columns_of_bodies_are_compared(place: Somewhere, tmp_path: Path) -> None:
    put(tmp_path / "s", *range(4))
    parsers = {"orders": Json.of(FIRST, "x")}
    land_spec(LandingSource(tmp_path / "s", "S"), attrs.evolve(place.spec, parsers=parsers))
    to = ("--to", place.to, "--store-id", "S", *place.options)
    text = lakelog_runs("lake", "verify", tmp_path / "s", *to, "--json").stdout
    summary = json.loads(text.splitlines()[-1])
    assert (summary["clean"], summary["not_parsed_rows"]) == (True, 0)
    assert "sum" in summary["columns"]


@pytest.mark.parametrize("place", ["delta"], indirect=True)
def test_a_table_for_each_topic_and_dead_letters(
    place: Somewhere, store_path: Path, aws: Aws
) -> None:
    to = f"{place.to}/of_{{topic}}"
    lakelog_runs("dispatch", store_path, "--to", to, "--once", *place.options)
    assert lakelog_runs("dispatch", store_path, "--to", to, "--once", *place.options).stderr == ""
    verified = lakelog_runs("lake", "verify", store_path, "--to", to, *place.options).stdout
    assert verified.count(": equal") == 3
    parsed = Somewhere(place.kind, f"{place.place}/parsed", place.prefix, place.storage)
    spec = parsed.spec
    spec = type(spec)(spec.to, parsers={"*": Even()}, storage=spec.storage)
    land_spec(LandingSource(store_path, "S"), spec, TaskLimits())
    bad = Somewhere(place.kind, f"{parsed.place}_dead_letters", place.prefix, place.storage)
    assert parsed.read().num_rows + bad.read().num_rows == 300


@pytest.mark.parametrize("place", SAMPLES, indirect=True)
def test_processes_write_straight_to_the_store(
    place: Somewhere, store_path: Path, aws: Aws
) -> None:
    sink = place.made()
    with processes(2) as engine:
        landed = land(
            LandingSource(store_path, "S"), sink, engine, TaskLimits(1 << 20, 64 << 10, 64 << 10)
        )
    assert landed is not None
    assert landed.files > 3
    place.assert_exactly(keys_of(store_path, "S"))
    assert place.named() == {
        each for each in aws.objects(place.prefix) if each.endswith(".parquet")
    }
    assert "secret" not in repr(sink)


def until_landed(source: LandingSource, sink: Sink) -> list[Landed]:
    """As a dispatcher that goes on after trouble that may pass."""
    passes: list[Landed] = []
    while True:
        with suppress(TemporaryError):
            passes += land_all(source, sink, BOUNDS)
            return passes


@pytest.mark.parametrize("place", TWO, indirect=True)
def test_lost_answers_neither_lose_nor_double(place: Somewhere, store_path: Path, aws: Aws) -> None:
    sink, source = place.made(), LandingSource(store_path, "S")
    commits = r"_delta_log/\d+\.json" if place.kind == "delta" else r"metadata/.*\.(json|avro)"
    for path in (commits, r"data/.*\.parquet"):
        aws.lose(3, f"{place.prefix}/.*{path}")
        landed = until_landed(source, sink)
        assert all(each.won for each in landed)
        place.assert_exactly(keys_of(store_path, "S"))
        filled(store_path, 60)
    aws.lose(0, "none")
    land_all(source, sink, BOUNDS)
    place.assert_exactly(keys_of(store_path, "S"))


@pytest.mark.parametrize(
    ("to", "options", "says"),
    [
        ("parquet:s3://bucket/t", [], "for an object store use delta:s3://bucket/t"),
        ("catalog:nowhere", [], "has no catalog 'nowhere'.*PYICEBERG_CATALOG__NOWHERE__URI"),
        ("iceberg:s3://bucket/t", [], "pyiceberg has no catalog 'default'"),
        ("catalog:x", ["type=hive", "uri=thrift://127.0.0.1:1"], r"a package.*pyiceberg\[hive\]"),
        ("catalog:x", ["type=none"], "the catalog 'x' cannot be used"),
        ("catalog:x", ["typ"], "'typ' is not KEY=VALUE"),
        ("delta:t", ["a=b"], "it takes no options"),
        ("delta:nix://bucket/t", [], "nix"),
    ],
)
def test_what_is_missing_is_said_in_one_line(
    to: str, options: list[str], says: str, store_path: Path
) -> None:
    given = [each for option in options for each in ("--storage", option)]
    done = run("dispatch", store_path, "--to", to, "--once", *given)
    assert done.exit_code in {2, 4}
    assert re.search(says, done.stderr), done.stderr
    assert done.stderr.count("\n") == 1


def test_who_may_not_is_told_what_to_do(aws: Aws, store_path: Path) -> None:
    options = [f"{key}={value}" for key, value in aws.environment.items()]
    given = [each for option in options for each in ("--storage", option)]
    to = f"delta:s3://{BUCKET}-of-nobody/t"
    done = run("dispatch", store_path, "--to", to, "--once", *given)
    assert done.exit_code == 4
    assert "AWS_ACCESS_KEY_ID" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_error_of_s3_names_what_to_look_at_in_plain_text(store_path: Path) -> None:
    """Its text has deltalake's colours, as the text of any error that object_store raises."""
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    environment |= {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    command = [LAKELOG, "dispatch", str(store_path), "--to", "delta:s3://bucket/t", "--once"]
    done = subprocess.run(
        [*command, "--engine", "processes"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    cause = "\x1b[31m\u21b3\x1b[0m no route"
    folder = remote_folder("s3://bucket/t", {})
    texts = [done.stderr, *(str(made) for made in (NotWritten(folder, cause), Conflict(cause)))]
    assert not any("\x1b" in each or "disk" in each for each in texts), texts
    assert all("AWS_ENDPOINT_URL" in each for each in texts[:2]), texts


def test_without_credentials_nothing_else_is_printed(store_path: Path) -> None:
    """Deltalake logs past Python, so that this takes a process."""
    environ = {key: it for key, it in os.environ.items() if not key.startswith("AWS_")}
    environ |= {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1", "HOME": str(store_path)}
    command = [LAKELOG, "dispatch", str(store_path), "--to", "delta:s3://nobody/t", "--once"]
    done = subprocess.run(
        [*command, "--engine", "processes"],
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1, done.stderr
