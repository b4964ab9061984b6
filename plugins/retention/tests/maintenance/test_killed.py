"""A cleaning that is killed on its way, at every change that it makes to the disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]


def test_whatever_change_it_is_killed_before_the_next_open_is_consistent(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "plugins.retention.tests.maintenance.killing", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row for row in rows if row["wrong"]] == []
    assert [row["killed"] for row in rows] == [True] * (len(rows) - 1) + [False]
    changes = [row["before"] or "" for row in rows]
    for kind in ("unlink commitlog/", "sync_dir ", "unlink 0/", "rename lakelog/queues.json"):
        assert any(each.startswith(kind) for each in changes), changes
    assert len({row["segments"] for row in rows}) > 3
