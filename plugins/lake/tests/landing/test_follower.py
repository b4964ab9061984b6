"""The follower ``lake``: what ``lakelog serve`` runs when the settings name it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

import lakelog
from lakelog import Message
from lakelog.errors import LakelogError
from lakelog_daemon.plan import ServePlan
from lakelog_lake.plugin import DispatchFollower, LakeSettings
from lakelog_testing import FollowerContract
from plugins.lake.tests.landing.tables import read
from plugins.lake.tests.landing.test_cli import PROCESSES
from plugins.tools.tests.daemon.support import serving
from tests.support.waiting import until


class TestDispatching(FollowerContract):
    patience_seconds = 30.0

    @pytest.fixture(autouse=True)
    def _store(self, tmp_path: Path) -> None:
        self.path = tmp_path
        lakelog.open(tmp_path / "s", plugins=[], segment_size_bytes="64KiB").close()

    def make(self) -> DispatchFollower:
        to = f"parquet:{self.path}/lake"
        return DispatchFollower(self.path / "s", LakeSettings(to=to, options=PROCESSES))


def test_it_must_be_told_where_to(tmp_path: Path) -> None:
    with pytest.raises(LakelogError, match="lake"):
        ServePlan.make(tmp_path, arguments={"followers": ["lake"]})


@pytest.mark.slow
def test_under_serve_it_lands_everything_once_though_it_is_killed(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    options = json.dumps(["--interval-ms", "50", "--processes", "1", *PROCESSES])
    chosen = ('followers=["lake"]', f"lake.to=parquet:{lake}", f"lake.options={options}")
    with serving(tmp_path, settings=(*chosen, "serve.hang_timeout_ms=30000")) as serve:
        with lakelog.open(serve.store) as store:
            for number in range(20):
                store.put(Message("t", b"%d" % number))
            until(lambda: landed(lake) == 20)
            os.kill(serve.running("lake"), signal.SIGKILL)
            for number in range(20, 40):
                store.put(Message("t", b"%d" % number))
        serve.running("lake", restarts=1)
        until(lambda: landed(lake) == 40)
        assert serve.stop() == 0
    assert sorted(bodies(lake)) == sorted(b"%d" % number for number in range(40))


def landed(lake: Path) -> int:
    return len(bodies(lake))


def bodies(lake: Path) -> list[bytes]:
    """What the table says, by its own files."""
    if not lake.exists():
        return []
    table = read("parquet", lake)
    return table["body"].to_pylist() if len(table) else []
