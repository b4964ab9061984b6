"""The real store fills a directory: the same seed gives the same log, with the requested end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.rows import by_kind

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.java import Oracle

SMALL = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}


def log_bytes(store: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((store / "commitlog").iterdir()))


def test_the_same_seed_gives_the_same_log(oracle: Oracle, tmp_path: Path) -> None:
    for name in ("one", "two"):
        oracle.fill(tmp_path / name, SMALL, count=300, seed=7)
    oracle.fill(tmp_path / "other", SMALL, count=300, seed=8)
    assert log_bytes(tmp_path / "one") == log_bytes(tmp_path / "two")
    assert log_bytes(tmp_path / "one") != log_bytes(tmp_path / "other")


def test_shutdown_is_clean_and_halt_is_not(oracle: Oracle, tmp_path: Path) -> None:
    oracle.fill(tmp_path / "stopped", SMALL, count=20)
    oracle.fill(tmp_path / "halted", SMALL, count=20, halt=True)
    assert not (tmp_path / "stopped" / "abort").exists()
    assert (tmp_path / "halted" / "abort").exists()


def test_the_last_puts_can_stay_undispatched(oracle: Oracle, tmp_path: Path) -> None:
    filled = oracle.fill(tmp_path, SMALL, halt=True, count=50, batch=4, undispatched=10)
    assert filled["dispatchedOffset"] < filled["maxPhyOffset"]
    assert len(by_kind(oracle.dump(tmp_path, SMALL))["rec"]) == 200
