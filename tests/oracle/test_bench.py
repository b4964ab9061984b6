"""The real store's benchmarks run in every mode. No test here looks at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.java import Oracle

RUNS: dict[str, dict[str, int | str]] = {
    "append": {},
    "append sync, many in flight": {"flush": "SYNC", "threads": 2, "inflight": 16},
    "batch": {"n": 16},
    "reput": {},
    "read": {},
    "query": {},
    "bytime": {},
    "latency": {},
}


@pytest.mark.parametrize("run", RUNS)
def test_every_mode_counts_all_messages(run: str, oracle: Oracle, tmp_path: Path) -> None:
    row = oracle.bench(
        tmp_path, run.split(maxsplit=1)[0], count=800, body=100, warm_ms=10, **RUNS[run]
    )
    assert row["messages"] == 800
    assert row["msgs_s"] > 0
    assert 0 < row["p50_us"] <= row["p99_us"]
