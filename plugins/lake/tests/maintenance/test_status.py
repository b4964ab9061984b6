"""``lake status``: how far a store has landed, and how large its tables are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakelog import Message
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from plugins.lake.tests.landing.table_specs import dispatcher
from plugins.lake.tests.landing.tables import any_kind, files
from plugins.lake.tests.landing.test_cli import identity, of_integers, run
from plugins.lake.tests.stores import filled, messages, open_small


def status(store: Path, to: str) -> dict[str, Any]:
    done = run("lake", "status", store, "--to", to, "--json")
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def landed(path: Path, to: str, count: int) -> None:
    """So many messages more."""
    filled(path, count)
    done = run("dispatch", path, "--to", to, "--once")
    assert done.exit_code == 0, done.stderr


@pytest.mark.sample(1)
def test_a_table_before_and_behind_new_messages(kind: str, tmp_path: Path) -> None:
    path, to = tmp_path / "s", f"{kind}:{tmp_path / 't'}"
    filled(path, 1)
    absent = run("lake", "status", path, "--to", to)
    assert (absent.exit_code, len(absent.stderr.splitlines())) == (2, 1)
    landed(path, to, 299)
    found = status(path, to)
    there = files(kind, tmp_path / "t")
    assert found["rows"] == 300
    assert found["files"] == len(there)
    assert found["bytes"] == sum(each.stat().st_size for each in there)
    assert found["landed_to"] == found["durable_to"]
    assert (found["lag_bytes"], found["dead_letters"]) == (0, 0)
    assert found["versions"] >= 1
    with open_small(path) as store:
        store.put_batch(list(messages(100)))
        end = store.max_offset
    behind = status(path, to)
    assert behind["landed_to"] == found["landed_to"]
    assert behind["lag_bytes"] == end - found["landed_to"] > 0
    shown = run("lake", "status", path, "--to", to).stdout
    assert f"{100 * behind['landed_to'] // behind['durable_to']} %" in shown


@pytest.mark.sample(1)
def test_the_last_commits_are_shown(kind: str, tmp_path: Path) -> None:
    """Each says how long the one before took, if that was of the same process."""
    path, to = tmp_path / "s", f"{kind}:{tmp_path / 't'}"
    lander = dispatcher(
        LandingSource(path, identity(filled(path, 30))), TableSpec(to), TaskLimits()
    )
    lander.is_last = lambda: True
    for count in (3, 300, 0):
        assert lander.one_pass() is not None
        filled(path, count)
    lander.close()
    found = status(path, to)
    commits = [each for each in found["commits"] if each["files"]]
    assert [each["rows"] for each in commits] == [30, 3, 300]
    assert sum(each["bytes"] for each in commits) == found["bytes"]
    assert sum(each["files"] for each in commits) == found["files"]
    times = [each["at_ms"] for each in commits]
    assert times == sorted(times)
    took = [each["took_ms"] for each in commits]
    assert None not in took[:-1]
    assert took[-1] is None
    shown = run("lake", "status", path, "--to", to).stdout
    assert "rows |" in shown
    assert "\u2581\u2581\u2588| at most 300" in shown


def test_a_commit_that_no_lakelog_understands_is_drawn(tmp_path: Path) -> None:
    path, to = tmp_path / "s", f"delta:{tmp_path / 't'}"
    for count in (30, 3):
        landed(path, to, count)
    logs = sorted((tmp_path / "t" / "_delta_log").glob("*.json"))
    text = logs[1].read_text()
    logs[1].write_text(text.replace('v\\\\\\":2', 'v\\\\\\":9'))
    assert logs[1].read_text() != text
    assert [each["rows"] for each in status(path, to)["commits"] if each["files"]] == [30, 3]


@any_kind
def test_dead_letters_are_counted_apart(kind: str, tmp_path: Path) -> None:
    path, to = tmp_path / "s", f"{kind}:{tmp_path / 't'}"
    with open_small(path) as store:
        store.put_batch([Message("t", b'{"a": 1}'), Message("t", b"\xff"), Message("t", b"\xfe")])
    done = run("dispatch", path, "--to", to, "--once", "--body", of_integers(tmp_path))
    assert done.exit_code == 0, done.stderr
    found = status(path, to)
    assert (found["rows"], found["dead_letters"]) == (1, 2)
