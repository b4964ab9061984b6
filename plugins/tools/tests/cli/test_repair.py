"""``lakelog repair`` prints its plan, asks for confirmation, executes it, and reports it."""

from __future__ import annotations

import json
import os
import pty
from pathlib import Path

import pytest

from plugins.tools.tests.cli.conftest import Run
from plugins.tools.tests.cli.test_recover import _segment, _spoil


@pytest.fixture
def damaged(lakelog: Run, store: Path) -> Path:
    """A store with six messages, closed, and one of those in the middle damaged."""
    done = lakelog("put", store, "orders", "first-body", "second-body", "third-body", "--queue", 1)
    assert done.returncode == 0, done.stderr
    _spoil(store, b"second-body")
    return store


def test_it_is_mended_and_told(lakelog: Run, damaged: Path) -> None:
    assert lakelog("verify", damaged).returncode == 1
    done = lakelog("repair", damaged, "--yes")
    assert done.returncode == 0, done.stderr
    assert f"mended    {_segment(damaged)}: offset " in done.stdout
    (kept,) = (damaged / "lakelog" / "quarantine").glob("*.bytes")
    assert f"kept in {kept}" in done.stdout
    assert "lost      messages of orders/1;" in done.stdout
    assert lakelog("verify", damaged, "--queues").returncode == 0
    again = lakelog("repair", damaged, "--yes")
    assert again.returncode == 0
    assert "nothing has to be replaced" in again.stdout
    assert "are right" in again.stdout


def test_where_nobody_can_be_asked_it_changes_nothing(lakelog: Run, damaged: Path) -> None:
    before = _segment(damaged).read_bytes()
    done = lakelog("repair", damaged)
    assert done.returncode == 2
    assert "mend  " in done.stderr
    assert "--yes" in done.stderr
    assert _segment(damaged).read_bytes() == before


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 1)])
def test_on_a_terminal_it_asks(lakelog: Run, damaged: Path, answer: bytes, code: int) -> None:
    before = _segment(damaged).read_bytes()
    master, slave = pty.openpty()
    with os.fdopen(slave) as terminal:
        os.write(master, answer)
        done = lakelog("repair", damaged, stdin=terminal)
    os.close(master)
    assert "Do it?" in done.stderr
    assert done.returncode == code
    assert (_segment(damaged).read_bytes() == before) is (code == 1)


def test_a_dry_run_tells_and_changes_nothing(lakelog: Run, damaged: Path) -> None:
    before = _segment(damaged).read_bytes()
    done = lakelog("repair", damaged, "--dry-run")
    assert done.returncode == 1  # as of 'recover --dry-run': there is something to mend
    assert f"mend      {_segment(damaged)}: offset " in done.stdout
    assert _segment(damaged).read_bytes() == before


def test_json_has_all_of_it(lakelog: Run, damaged: Path) -> None:
    planned = json.loads(lakelog("repair", damaged, "--dry-run", "--json").stdout)
    done = json.loads(lakelog("repair", damaged, "--yes", "--json").stdout)
    assert (planned["dry_run"], done["dry_run"]) == (True, False)
    assert planned["steps"] == done["steps"]
    (step,) = done["steps"]
    assert (step["path"], step["possible"]) == (str(_segment(damaged)), True)
    (kept,) = done["kept"]
    assert kept["offset"] == step["offset"]
    assert Path(kept["kept"]).is_file()
    assert done["led"] == [{"topic": "orders", "queue_id": 1}]
