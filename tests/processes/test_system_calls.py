"""Under load an owner makes fewer than one system call for ten messages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.bench.durable.work import Work
from tests.bench.model import CannotRunError
from tests.bench.processes.calls import calls
from tests.bench.processes.owner import ATTACHED

MOST: Final = 0.1
SECONDS: Final = 0.25
SETTINGS: Final = 'flush = "timed"\nsegment_size_bytes = "128MiB"\n'
LOADS: Final[Mapping[str, list[Work]]] = {
    "batches of two": [Work(6 * SECONDS, batch_size=256, columns=True, options=ATTACHED)] * 2,
    "futures of two": [Work(6 * SECONDS, in_flight=256, options=ATTACHED)] * 2,
    "single puts of two with many threads": [Work(6 * SECONDS, threads=64, options=ATTACHED)] * 2,
}


@pytest.mark.parametrize(
    "load",
    [  # how many single puts come together depends on what else the machine does
        pytest.param(load, marks=pytest.mark.slow if load.startswith("single") else ())
        for load in LOADS
    ],
)
def test_an_owner_makes_few_calls_for_a_message(load: str, tmp_path: Path) -> None:
    try:
        sample = calls(SETTINGS, LOADS[load], SECONDS, tmp_path)
    except CannotRunError as reason:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(reason))
    assert sample["rows_s"] > 0
    assert sample["calls_message"] < MOST, (tmp_path / "strace").read_text()
