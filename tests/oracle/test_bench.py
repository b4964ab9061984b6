"""The real store's benchmarks run in every mode. No speed is checked."""

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


@pytest.mark.sample(1)
@pytest.mark.parametrize("run", RUNS)
def test_every_mode_counts_all_messages(run: str, oracle: Oracle, tmp_path: Path) -> None:
    row = oracle.bench(
        tmp_path, run.split(maxsplit=1)[0], count=800, body=100, warm_ms=10, **RUNS[run]
    )
    assert row["messages"] == 800
    assert row["msgs_s"] > 0
    assert 0 < row["p50_us"] <= row["p99_us"]


def test_puts_go_on_until_the_time_is_over(oracle: Oracle, tmp_path: Path) -> None:
    row = oracle.bench(tmp_path, "append", ms=50, body=100, warm_ms=10, flush="SYNC", inflight=8)
    assert row["messages"] > 0
    assert row["seconds"] >= 0.045  # two clocks, one of ms


def test_the_start_of_a_filled_store(oracle: Oracle, tmp_path: Path) -> None:
    oracle.bench(tmp_path, "append", count=800, body=100, warm_ms=10)
    row = oracle.bench(tmp_path, "load")
    assert row["max_offset"] >= 800 * 100
    assert 0 < row["load_ms"] <= row["start_ms"] <= row["dispatched_ms"]
