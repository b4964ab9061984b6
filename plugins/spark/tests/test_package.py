"""Jars are downloaded by one session at a time, and then used as they lie."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from lakelog_spark.sessions.package import DELTA, ICEBERG, packages


def test_the_first_session_downloads_and_holds_others_off(tmp_path: Path) -> None:
    ivy = tmp_path / "ivy"
    with packages([ICEBERG, DELTA], ivy) as told:
        assert told["spark.jars.packages"].split(",") == [
            each.coordinates for each in (*ICEBERG.asked, *DELTA.asked)
        ]
        assert told["spark.jars.ivy"] == str(ivy)
        with (ivy / "lakelog.lock").open("w") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (ivy / "lakelog.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_what_was_downloaded_is_used(tmp_path: Path) -> None:
    jars = [each.within(tmp_path) for each in (*ICEBERG.jars, *DELTA.jars)]
    for jar in jars:
        assert "spark.jars.packages" in told(tmp_path)
        jar.parent.mkdir(parents=True, exist_ok=True)
        jar.write_bytes(b"jar")
    assert told(tmp_path) == {"spark.jars": ",".join(map(str, jars))}


def told(ivy: Path) -> dict[str, str]:
    with packages([ICEBERG, DELTA], ivy) as found:
        return found


def test_a_session_without_tables_asks_for_nothing(tmp_path: Path) -> None:
    with packages([], tmp_path / "ivy") as found:
        assert found == {}
    assert not (tmp_path / "ivy").exists()
