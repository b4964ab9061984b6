"""Which engine ``--engine auto`` takes without Spark, and what it says."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from lakelog.errors import SettingsError
from lakelog_lake.commands.choosing import chosen
from lakelog_lake.commands.options import EngineName
from plugins.lake.tests.landing.test_cli import run


def test_without_lakelog_spark_processes_land(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(**_: str) -> tuple[EntryPoint, ...]:
        return ()

    monkeypatch.setattr("lakelog_lake.engine_provider.entry_points", none)
    to = ("--to", f"parquet:{tmp_path / 't'}", "--once", "--engine", "auto")
    done = run("dispatch", store_path, *to)
    assert done.exit_code == 0
    assert done.stderr.splitlines()[0] == (
        "lakelog: engine processes, not spark: lakelog-spark is not installed "
        "(pip install 'lakelog[spark]')"
    )
    with pytest.raises(SettingsError, match="need Spark: lakelog-spark is not installed"):
        chosen(EngineName.AUTO, needs_spark=True)


def test_an_engine_that_is_named_is_taken_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    assert chosen(EngineName.SPARK, needs_spark=True) is EngineName.SPARK
    assert chosen(EngineName.PROCESSES) is EngineName.PROCESSES
    with pytest.raises(SettingsError, match="need --engine spark"):
        chosen(EngineName.PROCESSES, needs_spark=True)
    assert capfd.readouterr() == ("", "")
