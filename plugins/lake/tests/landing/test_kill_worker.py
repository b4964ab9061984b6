"""A process that writes data files is killed: nothing of its pass lands, and the next one does."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from threading import Event
from typing import Any

import attrs
import pyarrow as pa
import pytest

from lakelog_lake.bodies.base import Parsed
from lakelog_lake.errors import TemporaryError, WorkerLost
from lakelog_lake.landing.dispatcher import Landed, LandingDispatcher, LandingSource
from lakelog_lake.landing.runner import until_stopped
from lakelog_lake.landing.targets import TableSpec, targets_for
from lakelog_lake.tasks.engines import processes
from plugins.lake.tests.landing.table_specs import Even, assert_parsed, read_dead
from plugins.lake.tests.landing.tables import SMALL, read


@attrs.frozen
class Deadly(Even):
    """Kills the process that it is in, as long as there is a file ``flag``."""

    flag: str = ""

    def parse(self, bodies: Any, rows: pa.RecordBatch) -> Parsed:
        if Path(self.flag).exists():
            Path(self.flag).unlink(missing_ok=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().parse(bodies, rows)


@pytest.mark.slow  # two pools of processes have to start
def test_a_dispatcher_goes_on_without_it(source: LandingSource, tmp_path: Path) -> None:
    (flag := tmp_path / "flag").touch()
    spec = TableSpec(f"parquet:{tmp_path / 't'}", parsers={"*": Deadly(flag=str(flag))})
    stop = Event()
    passes: list[Landed] = []
    troubles: list[TemporaryError] = []

    def trouble(error: TemporaryError, seconds: float) -> None:
        if seconds > 0.01:
            troubles.append(error)

    def land() -> Landed | None:
        landed = dispatcher.one_pass()
        if landed is None:
            stop.set()
        return landed

    with processes(2) as engine:
        dispatcher = LandingDispatcher(source, targets_for(spec), engine, SMALL)
        until_stopped(land, stop, 0.01, passes.append, trouble)
    assert [type(each) for each in troubles] == [WorkerLost]
    assert "was killed" in str(troubles[0])
    assert len(passes) > 1
    good, bad = read("parquet", tmp_path / "t"), read_dead("parquet", tmp_path / "t")
    assert_parsed(good, bad, source.path, None)
