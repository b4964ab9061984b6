"""The bench of processes runs and counts everybody. No test here looks at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.bench.durable.work import Work
from tests.bench.processes.idle import idle
from tests.bench.processes.owner import ATTACHED, produced

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


def test_an_idle_owner_is_watched(tmp_path: Path) -> None:
    sample = idle(SETTINGS, 1, 0.2, tmp_path)
    assert sample["processes"] >= 1
    assert sample["pss_mib"] > 1
