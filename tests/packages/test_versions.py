"""Other libraries in the versions that are allowed: the oldest, some between, and the newest.

pip installs the distributions from wheels, each time in an empty environment, with what they need.
All tests run with the versions of this environment, which are the newest.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from lakelog_spark import sessions
from plugins.lake.tests.landing.test_iceberg_internals import PRIVATE
from tests.packages.environment import PIP, Environment
from tests.packages.projects import BY_NAME, ROOT
from tests.support.required import missing

RANGES: Final = {
    each.name: each.specifier
    for project in ("lakelog-lake", "lakelog-queues", "lakelog-spark")
    for each in map(Requirement, BY_NAME[project].requires)
    if each.name in {"deltalake", "pyarrow", "pyiceberg", "pyspark"}
}
ADAPTER: Final = ROOT / "plugins/lake/src/lakelog_lake/sinks/iceberg_internals.py"


def oldest(name: str) -> str:
    """The first version of a range."""
    (least,) = (each.version for each in RANGES[name] if each.operator == ">=")
    return f"=={least}"


TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "oldest": {each: oldest(each) for each in ("deltalake", "pyarrow", "pyiceberg")},
    "between": {"pyarrow": "==22.*", "pyiceberg": "==0.11.*"},
    "oldest Arrow": {"pyarrow": oldest("pyarrow")},
    "newest": {},
}
SPARKS: Final[Mapping[str, Mapping[str, str]]] = {
    "oldest": {"pyspark": oldest("pyspark")},
    "between": {"pyspark": "==4.2.*"},
    "newest": {"pyspark": str(RANGES["pyspark"])},
}


@pytest.mark.parametrize("name", ["deltalake", "pyiceberg"])
def test_the_newest_version_that_is_allowed_is_the_one_of_the_tests(name: str) -> None:
    found = Version(version(name))
    assert found in RANGES[name]
    assert f"{found.major}.{found.minor + 1}" not in RANGES[name]
    assert f"{found.major + 1}.0" not in RANGES[name]


def test_only_the_adapter_imports_private_names() -> None:
    for path in ROOT.glob("plugins/*/src/**/*.py"):
        found = {
            each.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
            and str(node.module).startswith(("pyiceberg", "deltalake"))
            for each in node.names
            if each.name.startswith("_")
        }
        known = {name for _, name, _ in PRIVATE if name.startswith("_")}
        assert found == (known if path == ADAPTER else set()), path


def install(made: Environment, wheels: Path, wanted: Mapping[str, str], *names: str) -> None:
    """Let pip install what was built, with these versions, and everything that they need."""
    pins = [f"{name}{each}" for name, each in wanted.items()]
    options = ["--python", str(made.python), "install", "--quiet", "--find-links", str(wheels)]
    pip = subprocess.run(
        [*PIP, *options, *names, *pins], capture_output=True, text=True, check=False
    )
    if pip.returncode:
        missing(f"pip cannot install {names} with {pins}: {pip.stderr[-500:]}")


INSTALLED: Final = """
import sys
from importlib.metadata import version
import lakelog, lakelog_lake
for each in (lakelog, lakelog_lake):
    assert each.__file__.startswith(f"{sys.prefix}/"), each.__file__
print(*map(version, sys.argv[1:]))
"""


def check_installed(made: Environment, wanted: Mapping[str, str]) -> list[Version]:
    """Return the versions of the libraries; they are those that are wanted, and ours of wheels."""
    said = made.run("-c", INSTALLED, *wanted, cwd=made.folder)
    found = [Version(each) for each in said.split()]
    for name, each in zip(wanted, found, strict=True):
        assert each in Requirement(name + wanted[name]).specifier, (name, each)
    return found


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("versions", TABLES)
def test_the_tests_of_tables_pass(versions: str, installed: Path, tmp_path: Path) -> None:
    made, wanted = Environment.make(tmp_path / "environment"), TABLES[versions]
    install(made, installed.parent / "wheels", wanted, "lakelog-lake[test]")
    check_installed(made, wanted)
    options = ("-q", "-W", "default", "-p", "no:cacheprovider")
    given = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""}
    said = made.run("-m", "pytest", *options, "plugins/lake/tests", cwd=ROOT, **given)
    assert re.search(r"\d{3,} passed", said), said


READS: Final = """
import os
from importlib.util import find_spec
import lakelog_spark
assert not any(map(find_spec, ("pyiceberg", "deltalake", "duckdb", "sqlalchemy")))
spark = lakelog_spark.session(master="local[2]")
lakelog_spark.register(spark)
messages = spark.read.format("lakelog").load("shop")
assert sorted(bytes(each.body) for each in messages.collect()) == [b"one", b"two"]
assert lakelog_spark.read(spark, "shop", "topic = 'orders'").count() == 2
stream = spark.readStream.format("lakelog").load("shop").writeStream.format("memory")
stream.queryName("seen").trigger(availableNow=True).start().awaitTermination()
assert spark.table("seen").count() == 2
spark.sql(f"CREATE TABLE shop USING lakelog LOCATION '{os.path.abspath('shop')}'")
assert spark.table("shop").count() == 2
"""
INSIDE: Final = """
import sys
import lakelog_spark
from lakelog_lake.errors import WrongSpark
is_delta = sys.argv[1] == "delta"
try:
    spark = lakelog_spark.session(None if is_delta else "iceberg", delta=is_delta)
    found = spark.read.format("delta").load("delta") if is_delta else "lake.lakelog.messages"
    print((found if is_delta else spark.table(found)).count(), "rows")
except WrongSpark as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("versions", SPARKS)
def test_spark_reads_and_lands(versions: str, installed: Path, tmp_path: Path) -> None:
    """It reads without any library of tables; their packages for Spark are named or refused."""
    if (reason := sessions.missing_java()) is not None:
        missing(reason)
    made, wanted = Environment.make(tmp_path / "environment"), SPARKS[versions]
    wheels = installed.parent / "wheels"
    install(made, wheels, wanted, "lakelog-spark[spark]")
    (spark,) = check_installed(made, wanted)
    made.lakelog(("put", "shop", "orders", "one", "two"), cwd=tmp_path)
    made.run("-c", READS, cwd=tmp_path)
    install(made, wheels, wanted, "lakelog-lake[delta,iceberg]")
    commands: list[tuple[str, ...]] = []
    for kind in ("iceberg", "delta", "parquet"):
        to = ("--to", f"{kind}:{kind}", "--engine")
        commands.append(("dispatch", "shop", *to, "spark", "--once"))
        commands += [("lake", "verify", "shop", *to, each) for each in ("spark", "processes")]
    done = made.lakelog(*commands, cwd=tmp_path)
    for command, (code, said) in zip(commands, done, strict=True):
        assert (code, "2 rows" in said) == (0, True), (command, said)
    for kind, packages in (("iceberg", sessions.ICEBERG), ("delta", sessions.DELTA)):
        known = {each.minor for each in map(Version, packages)}
        expected = "2 rows" if spark.minor in known else f"has no package for Spark 4.{spark.minor}"
        assert expected in made.run("-c", INSIDE, kind, cwd=tmp_path)
