"""``lakelog rebuild`` builds queues and index again from the log, and reports them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from plugins.tools.tests.cli.conftest import Run, spoil_second


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("options", [["--queues"], []])
def test_queues_come_back_as_they_were(lakelog: Run, store: Path, options: list[str]) -> None:
    before = _files(store / "consumequeue")
    assert len(before) == 1
    shutil.rmtree(store / "consumequeue")
    done = lakelog("rebuild", store, *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("built consumequeue")
    assert " from 3 records (" in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert _files(store / "consumequeue") == before


def test_json_has_numbers_with_their_units(lakelog: Run, store: Path) -> None:
    done = lakelog("rebuild", store, "--queues", "--json")
    (report,) = map(json.loads, done.stdout.splitlines())
    assert report.pop("seconds") >= 0
    rows = list(map(json.loads, lakelog("scan", store, "--json").stdout.splitlines()))
    assert report == {
        "records": 3,
        "size_bytes": sum(row["size"] for row in rows),
        "damaged_places": 0,
        "damaged_bytes": 0,
        "folders": ["consumequeue"],
    }


def test_damage_is_passed_over_and_told(lakelog: Run, store: Path) -> None:
    second, segment = spoil_second(lakelog, store), next((store / "commitlog").iterdir())
    done = lakelog("rebuild", store, "--queues")
    assert done.returncode == 1
    assert f"damaged: {segment}: record at offset {second}" in done.stderr
    assert "from 2 records" in done.stdout
    assert "passed over 1 damaged places" in done.stdout


@pytest.mark.parametrize("name", ["path", "queues", "progress"])
def test_what_is_no_setting_is_told(lakelog: Run, store: Path, name: str) -> None:
    done = lakelog("rebuild", store, "--set", f"{name}=x")
    assert (done.returncode, done.stdout) == (2, "")
    assert "this is no setting" in done.stderr


def test_a_bar_on_a_terminal_and_the_report_alone_elsewhere(
    lakelog: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # every stream counts as a terminal
    done = lakelog("rebuild", store, "--queues")
    assert (done.returncode, "rebuilding" in done.stderr) == (0, True)
    assert done.stdout.startswith("built consumequeue")
