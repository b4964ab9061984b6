"""The batch reader behind Spark Connect: the driver has no JVM, and needs no Java."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import lakelog_spark
from lakelog_spark.errors import WrongSpark
from plugins.spark.tests.clusters import bare_python, connect_server, run
from plugins.spark.tests.landing.tables import keys_of
from plugins.spark.tests.stores import messages, open_small

HAS_GRPC = find_spec("grpc") is not None


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.skipif(not HAS_GRPC, reason="pyspark[connect] is not installed")
@pytest.mark.parametrize("ship", [False, True])
def test_a_store_is_read_by_a_server(tmp_path: Path, *, ship: bool) -> None:
    """With ``ship`` the server's Python lacks lakelog."""
    with open_small(tmp_path / "store") as made:
        made.put_batch(list(messages(200)))
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


@pytest.mark.skipif(HAS_GRPC, reason="pyspark[connect] is installed")
def test_what_it_needs_is_named() -> None:
    with pytest.raises(WrongSpark, match=r"no grpc.*pip install 'pyspark\[connect\]"):
        lakelog_spark.session(remote="sc://127.0.0.1:1")
