"""Iceberg's package is downloaded by one session at a time, and then used as it lies."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from lakelog_spark.package import GROUP, NAME, VERSION, iceberg_package


def test_the_first_session_downloads_and_holds_others_off(tmp_path: Path) -> None:
    ivy = tmp_path / "ivy"
    with iceberg_package(ivy) as package:
        assert package["spark.jars.packages"] == f"{GROUP}:{NAME}:{VERSION}"
        assert package["spark.jars.ivy"] == str(ivy)
        with (ivy / "lakelog.lock").open("w") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (ivy / "lakelog.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_what_was_downloaded_is_used(tmp_path: Path) -> None:
    jar = tmp_path / "cache" / GROUP / NAME / "jars" / f"{NAME}-{VERSION}.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"jar")
    with iceberg_package(tmp_path) as package:
        assert package == {"spark.jars": str(jar)}
