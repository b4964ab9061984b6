"""The batch reader behind Spark Connect: the driver has no JVM, and needs no Java."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import lakelog_spark
from lakelog_lake.errors import WrongSpark
from lakelog_spark.sessions import local
from plugins.lake.tests.landing.tables import keys_of
from plugins.lake.tests.stores import filled
from plugins.spark.tests.clusters import bare_python, connect_server, run


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("ship", [False, True])
def test_a_store_is_read_by_a_server(tmp_path: Path, *, ship: bool) -> None:
    """With ``ship`` the server's Python lacks lakelog."""
    filled(tmp_path / "store", 200)
    python = str(bare_python(tmp_path / "bare")) if ship else sys.executable
    with connect_server(tmp_path, python) as remote:
        given = {"remote": remote, "store": str(tmp_path / "store"), "ship": ship}
        text = run("-m", "plugins.spark.tests.connect_driver", json.dumps(given))
    said, keys = json.loads(text), keys_of(tmp_path / "store", "S")
    assert said["session"] == "pyspark.sql.connect.session"
    assert said["offsets"] == sorted(each[4] for each in keys)
    assert said["rows"] == len(keys)
    assert said["filtered"] == sum(each[1] == "topic-1" and each[3] < 5 for each in keys)
    assert said["by_key"] == 1


@pytest.mark.parametrize("absent", ["grpc", "google.rpc"])
def test_what_it_needs_is_named(absent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> object:
        if name == "grpc" == absent:
            return None
        if name == absent:
            raise ModuleNotFoundError(f"No module named {name.partition('.')[0]!r}")
        return name

    monkeypatch.setattr(local, "find_spec", find)
    with pytest.raises(WrongSpark, match=rf"no {absent}\).*pip install 'pyspark\[connect\]"):
        lakelog_spark.session(remote="sc://127.0.0.1:1")
