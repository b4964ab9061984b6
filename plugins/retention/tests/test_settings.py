"""Invalid values are rejected at open, with the name of the setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakelog
import lakelog_rocketmq.plugin
from lakelog.errors import SettingsError
from lakelog_retention import plugin
from lakelog_retention.settings import local_time, parse_hours


@pytest.mark.parametrize(
    ("section", "key", "value", "words"),
    [
        ("retention", "delete_when", "25", "hours from 00 to 23"),
        ("retention", "delete_when", "", "hours from 00 to 23"),
        ("retention", "delete_when", 4, "expected a string"),
        ("retention", "time_zone", "Mars/Crater", "no time zone"),
        ("retention", "time_zone", "../etc", "no time zone"),
        ("retention", "file_reserved_hours", -1, "-1"),
        ("retention", "file_reserved_hours", "90m", "is not a whole number"),
        ("retention", "max_total_bytes", -5, "-5"),
        ("retention", "max_segments", 0, ">= 1"),
        ("retention", "delete_files_batch_max", 0, ">= 1"),
        ("retention", "clean_forcibly", "perhaps", "true or false"),
        ("psutil", "max_used_ratio", 75, "between 0% and 100%"),
        ("psutil", "warning_ratio", "110%", "between 0% and 100%"),
        ("psutil", "max_used_ratio", 0.86, "must not be above clean_forcibly_ratio=0.85"),
        ("psutil", "clean_forcibly_ratio", "95%", "must not be above warning_ratio=0.9"),
        ("psutil", "warning_ratio", 0.8, "clean_forcibly_ratio=0.85 must not be above"),
        ("psutil", "min_free_inodes", -1, ">= 0"),
    ],
)
def test_refused(section: str, key: str, value: object, words: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {section: {key: value}}
    with pytest.raises(SettingsError, match=words) as caught:
        lakelog.open(tmp_path / "s", plugins=[plugin], segment_size_bytes=1 << 16, **given)
    assert caught.value.key == f"{section}.{key}"
    assert f"{section}.{key}" in str(caught.value)
    assert not (tmp_path / "s").exists()


def test_what_people_write(tmp_path: Path) -> None:
    with lakelog.open(
        tmp_path / "s",
        plugins=[plugin],
        segment_size_bytes=1 << 16,
        cleaner="keep-forever",
        retention={"file_reserved_hours": "3d", "max_total_bytes": "1GiB", "delete_when": "4; 16"},
        psutil={"warning_ratio": "90%", "max_used_ratio": 0.9, "clean_forcibly_ratio": 0.9},
    ) as store:
        section = store.settings.section("retention")
    assert (section.file_reserved_hours, section.max_total_bytes) == (72, 1 << 30)
    assert section.hours == (4, 16)


def test_broker_conf(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "deleteWhen=04;05\nfileReservedTime=48\ndiskMaxUsedSpaceRatio=88\ndeleteFileBatchMax=3\n"
        "deleteCommitLogFilesInterval=7\ndestroyMapedFileIntervalForcibly=120000\n"
        "cleanFileForciblyEnable=false\nredeleteHangedFileInterval=120000\n"
    )
    plugins = [plugin, lakelog_rocketmq.plugin]
    with lakelog.open(
        tmp_path / "s", plugins=plugins, segment_size_bytes=1 << 16, broker_conf=conf
    ) as store:
        section, disk = (store.settings.section(name) for name in ("retention", "psutil"))
        assert store.settings.unused == {}
    assert (section.hours, section.file_reserved_hours, section.clean_forcibly) == (
        (4, 5),
        48,
        False,
    )
    assert (section.pace.batch_max, section.pace.interval_ms) == (3, 7)
    assert (disk.max_used_ratio, disk.clean_forcibly_ratio, disk.warning_ratio) == (0.85, 0.85, 0.9)


def test_hours_are_local_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Etc/GMT-5")
    time.tzset()
    try:
        assert local_time(0, None).hour == 5
    finally:
        monkeypatch.undo()
        time.tzset()
    assert local_time(0, "UTC").hour == 0


def test_an_hour_that_clocks_skip_does_not_come() -> None:
    start = 1_774_742_400_000  # the day of 2026 on which clocks in Berlin skip 02:00
    hours = [local_time(start + at * 3_600_000, "Europe/Berlin").hour for at in range(24)]
    assert 2 not in hours
    assert parse_hours("02") == (2,)
