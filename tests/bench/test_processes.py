"""The bench of processes runs and counts all processes. No time is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.bench.durable.work import Options, Work
from tests.bench.processes.idle import idle
from tests.bench.processes.owner import ATTACHED, produced, produced_elsewhere

SETTINGS: Final = 'flush = "timed"\nsegment_size_bytes = "8MiB"\n'
SECONDS: Final = 0.05


def test_producers_put_together(tmp_path: Path) -> None:
    works = [
        Work(SECONDS, options=ATTACHED),
        Work(SECONDS, in_flight=8, options=ATTACHED),
        Work(SECONDS, batch_size=32, columns=True, options=ATTACHED),
    ]
    sample = produced(tmp_path, SETTINGS, works)
    assert sample["rows_s"] > 3 / SECONDS / 2
    assert sample["cores"] > 0


@pytest.mark.parametrize(
    ("driver", "options"),
    [
        ("lmdb", {"shared": True, "sync": False}),
        ("sqlite", {"journal": "WAL", "synchronous": "NORMAL"}),
    ],
)
def test_processes_of_other_stores_put_together(
    driver: str, options: Options, tmp_path: Path
) -> None:
    pytest.importorskip(driver if driver == "lmdb" else "sqlite3")
    works = [Work(SECONDS, options=options), Work(SECONDS, batch_size=8, options=options)]
    assert produced_elsewhere(tmp_path, driver, works)["rows_s"] > 2 / SECONDS / 2


def test_an_idle_owner_is_watched(tmp_path: Path) -> None:
    sample = idle(SETTINGS, 1, 0.2, tmp_path)
    assert sample["processes"] >= 1
    assert sample["pss_mib"] > 1
