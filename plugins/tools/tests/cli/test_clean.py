"""``lakelog clean`` and the bars of ``lakelog stats``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from core.tests.maintenance.support import Keeping, MaintenancePlugin, fill
from core.tests.store.support import SEGMENT
from lakelog.files.filesystem import RealFileSystem
from lakelog.maintenance.pins import Pin, write_pin
from lakelog_cli.app import make_app
from lakelog_cli.options import OpenOptions
from plugins.tools.tests.cli.conftest import Run

Command = Callable[..., str]


@pytest.fixture
def cleaning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run ``lakelog clean`` on a store of which all but one sealed segment may go."""
    for name in [name for name in os.environ if name.startswith("LAKELOG_")]:
        monkeypatch.delenv(name)
    plugin, path = MaintenancePlugin(Keeping(keep=1)), tmp_path / "store"
    with plugin.open(path) as store:
        fill(store, 160)

    def opened(_self: OpenOptions, mode: str, path: Path, **_more: Any) -> Any:
        return plugin.open(path, mode=mode)

    monkeypatch.setattr(OpenOptions, "open", opened)

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(make_app(), ["clean", str(path), *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


def test_a_dry_run_says_what_would_go_why_and_how_much(cleaning: Command, tmp_path: Path) -> None:
    before = sorted((tmp_path / "store" / "commitlog").iterdir())
    *lines, summary = cleaning("--dry-run").splitlines()
    assert len(lines) == len(before) - 2
    assert lines[0].startswith(f"{0:020d}  {SEGMENT} bytes  last message ")
    assert lines[0].endswith("  surplus")
    count = len(lines)
    assert summary == (
        f"{count} segments ({count * SEGMENT} bytes) would be deleted; "
        f"the log would begin at {count * SEGMENT}"
    )
    assert sorted((tmp_path / "store" / "commitlog").iterdir()) == before


def test_clean_deletes_and_says_so(cleaning: Command, tmp_path: Path) -> None:
    *segments, summary = [json.loads(line) for line in cleaning("--json").splitlines()]
    starts = [each["start_offset"] for each in segments]
    assert starts == [at * SEGMENT for at in range(len(segments))]
    assert summary["freed_bytes"] == len(segments) * SEGMENT
    left = min(each.name for each in (tmp_path / "store" / "commitlog").iterdir())
    assert (summary["min_offset"], summary["kept"]) == (int(left), None)


def test_beside_others_the_one_with_the_services_deletes(cleaning: Command, tmp_path: Path) -> None:
    with MaintenancePlugin(Keeping(keep=1)).open(tmp_path / "store") as owner:
        *segments, summary = [json.loads(line) for line in cleaning("--json").splitlines()]
        assert summary["min_offset"] == owner.min_offset == len(segments) * SEGMENT > 0


def test_what_holds_is_named(cleaning: Command, tmp_path: Path) -> None:
    write_pin(RealFileSystem(), tmp_path / "store", Pin("lake", SEGMENT, 0))
    assert f"{SEGMENT:020d} stays: followers still need it: lake" in cleaning("--dry-run")
    assert f"{SEGMENT:020d} stays: followers still need it: lake" in cleaning()


def test_where_nothing_may_be_cleaned_nothing_is_touched(
    lakelog: Run, tmp_path: Path, store: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "none", store):
        before = sorted(path.rglob("*")), [each.stat().st_mtime_ns for each in path.rglob("*")]
        assert lakelog("clean", path).returncode in (2, 3)
        after = sorted(path.rglob("*")), [each.stat().st_mtime_ns for each in path.rglob("*")]
        assert after == before
    assert not (tmp_path / "none").exists()


def test_stats_show_each_disk(lakelog: Run, store: Path) -> None:
    found = json.loads(lakelog("stats", store, "--json").stdout)
    assert found["disk_state"] is None
    assert len(found["disks"]) == 1
    disk = found["disks"][0]
    assert 0 < disk["used_ratio"] < 1
    assert disk["free_bytes"] > 0
    bar = next(line for line in lakelog("stats", store).stdout.splitlines() if "disk [" in line)
    assert bar.count("#") + bar.count(".") >= 30
    assert bar.endswith(f"bytes free: {store}/commitlog")
