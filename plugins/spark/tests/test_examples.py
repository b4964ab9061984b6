"""Examples in the session that is there; ``tests/examples`` has processes of their own for them."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lakelog_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("log_to_iceberg.py", "SmokeTopic"),
        ("write_back.py", "1000 messages"),
    ],
)
def test_an_example_runs(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    said: str,
) -> None:
    monkeypatch.setattr(lakelog_spark, "session", lambda *_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.setattr(sys, "argv", [name])
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert said in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [], "it should leave nothing behind"
    spark.sql("DROP TABLE IF EXISTS lake.rocketmq.messages PURGE")
