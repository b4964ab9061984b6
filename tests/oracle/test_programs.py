"""The programs over the real store do what they say. No speed is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from lakelog.files.filesystem import RealFileSystem
from lakelog_queues.consumers.offsettable import OffsetTable
from lakelog_rocketmq.config import load_offsets
from tests.support.fixtures import NAMES, StoreFixtures
from tests.support.rows import by_kind, difference

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.java import Oracle

SMALL: Final = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}
RUNS: Final[dict[str, dict[str, int | str]]] = {
    "append": {},
    "append sync, many in flight": {"flush": "SYNC", "threads": 2, "inflight": 16},
    "batch": {"n": 16},
    **{each: {} for each in ("reput", "read", "query", "bytime", "latency")},
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", NAMES)
def test_dump_repeats_what_was_recorded(
    name: str, oracle: Oracle, store_fixtures: StoreFixtures
) -> None:
    fixture = store_fixtures.get(name)
    rows = oracle.dump(fixture.store, fixture.options)
    assert difference(rows, fixture.expected_rows) == ""
    if name == "truncated_file":
        assert [row["loaded"] for row in rows] == [False]


def test_dump_in_place_leaves_a_stopped_store(
    oracle: Oracle, store_fixtures: StoreFixtures, tmp_path: Path
) -> None:
    fixture = store_fixtures.copy("abnormal", tmp_path)
    recovered = oracle.dump(fixture.store, fixture.options, in_place=True)
    assert not (fixture.store / "abort").exists()
    again = oracle.dump(fixture.store, fixture.options)
    assert difference(again[1:], recovered[1:]) == ""
    with pytest.raises(RuntimeError, match="no property mapedFileSize"):
        oracle.dump(fixture.store, {"mapedFileSize": "1"})


def log_bytes(store: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((store / "commitlog").iterdir()))


def test_the_same_seed_gives_the_same_log(oracle: Oracle, tmp_path: Path) -> None:
    for name, seed in (("one", 7), ("two", 7), ("other", 8)):
        oracle.fill(tmp_path / name, SMALL, count=300, seed=seed)
    assert log_bytes(tmp_path / "one") == log_bytes(tmp_path / "two")
    assert log_bytes(tmp_path / "one") != log_bytes(tmp_path / "other")
    assert not (tmp_path / "one" / "abort").exists()


def test_the_last_puts_of_a_halted_store_can_stay_undispatched(
    oracle: Oracle, tmp_path: Path
) -> None:
    filled = oracle.fill(tmp_path, SMALL, halt=True, count=50, batch=4, undispatched=10)
    assert (tmp_path / "abort").exists()
    assert filled["dispatchedOffset"] < filled["maxPhyOffset"]
    assert len(by_kind(oracle.dump(tmp_path, SMALL))["rec"]) == 200


@pytest.mark.sample(1)
@pytest.mark.parametrize("run", RUNS)
def test_every_mode_counts_all_messages(run: str, oracle: Oracle, tmp_path: Path) -> None:
    mode = run.split(maxsplit=1)[0]
    row = oracle.bench(tmp_path, mode, count=800, body=100, warm_ms=10, **RUNS[run])
    assert row["messages"] == 800
    assert row["msgs_s"] > 0
    assert 0 < row["p50_us"] <= row["p99_us"]


def test_puts_go_on_until_the_time_is_over_and_the_store_is_opened_again(
    oracle: Oracle, tmp_path: Path
) -> None:
    row = oracle.bench(tmp_path, "append", ms=50, body=100, warm_ms=10, flush="SYNC", inflight=8)
    assert row["messages"] > 0
    assert row["seconds"] >= 0.05
    loaded = oracle.bench(tmp_path, "load")
    assert loaded["max_offset"] >= row["messages"] * 100
    assert 0 < loaded["load_ms"] <= loaded["start_ms"] <= loaded["dispatched_ms"]


def test_offsets_of_groups_go_both_ways(oracle: Oracle, tmp_path: Path) -> None:
    files = RealFileSystem()
    table = OffsetTable(files, tmp_path, lambda: True)
    table.commit("g", "Müll", {0: 1, 10: (1 << 62) + 1, 2: 3})
    table.commit("h", "%RETRY%g", {0: 0})
    rows = oracle.run("ConsumerOffsets", tmp_path, ["--write", "true"])
    assert [(row["name"], row["queue"], row["offset"], row["counter"]) for row in rows] == [
        ("%RETRY%g@h", 0, 0, 2),
        ("Müll@g", 0, 1, 2),
        ("Müll@g", 2, 3, 2),
        ("Müll@g", 10, (1 << 62) + 1, 2),
    ]
    assert "{0:" in (tmp_path / "config" / "consumerOffset.json").read_text("utf-8")
    loaded = load_offsets(files, tmp_path)
    assert loaded.value == {"Müll@g": {0: 1, 10: (1 << 62) + 1, 2: 3}, "%RETRY%g@h": {0: 0}}
    assert loaded.content["dataVersion"]["counter"] == 2
