"""The processes that have a store open, and the files they hold, as shown by ``lakelog top``."""

from __future__ import annotations

import json
import os
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from core.tests.maintenance.support import Keeping, MaintenancePlugin, fill
from core.tests.store.support import NEVER, open_small, segments
from core.tests.store.workers import SERVE, a_worker
from lakelog.files.filesystem import RealFileSystem
from lakelog_cli.app import make_app
from lakelog_daemon import watching
from lakelog_daemon.watching import Watcher
from tests.support.waiting import until


def watcher(path: Path) -> Watcher:
    return Watcher(RealFileSystem(), path, path / "commitlog")


def top(path: Path, *more: str) -> str:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(make_app(), ["top", str(path), "--once", *more])
    assert done.exit_code == 0, done.output
    return done.output


def by_pid(view: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {row["pid"]: row for row in view["members"]}


def test_all_that_have_it_open_are_named(tmp_path: Path) -> None:
    with ExitStack() as opened:
        owner = opened.enter_context(a_worker(tmp_path, SERVE))
        assert owner.hear() == {"role": "owner"}
        other = opened.enter_context(a_worker(tmp_path, "write", **NEVER))
        assert other.hear() == {"role": "attach"}
        with open_small(tmp_path, **NEVER), open_small(tmp_path, **NEVER):
            view = json.loads(top(tmp_path, "--json"))
            shown = top(tmp_path)
        found = by_pid(view)
        pids = owner.process.pid, other.process.pid, os.getpid()
        assert {pid: found[pid]["opens"] for pid in pids} == dict(zip(pids, (1, 1, 2), strict=True))
        assert found[owner.process.pid]["does"] == ["services"]
        assert found[other.process.pid]["does"] == []
        assert (len(found), view["members_not_seen"]) == (3, 0)
        assert (view["services"], view["appending"]) == (owner.process.pid, None)
        assert re.search(rf"{owner.process.pid}\b.*\bservices\b", shown)
        owner.kill()
        view = watcher(tmp_path).view()
        assert set(by_pid(view)) == {other.process.pid}
        assert (view["services"], view["health"]) == (None, "degraded")
        assert "nobody has the services" in top(tmp_path)


def test_who_cannot_be_seen_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hidden processes are those of another user, and of another container."""
    opened = watching._opened

    def refused(pid: int) -> Any:
        if pid == os.getpid():
            raise PermissionError
        return opened(pid)

    with a_worker(tmp_path, SERVE) as owner:
        owner.hear()
        with open_small(tmp_path, **NEVER):
            monkeypatch.setattr(watching, "_opened", refused)
            view, shown = watcher(tmp_path).view(), top(tmp_path)
    assert set(by_pid(view)) == {owner.process.pid}
    assert (view["members_not_seen"], view["processes_not_readable"] > 0) == (1, True)
    assert "1 more have it open" in shown


def test_an_append_that_takes_long_is_told(tmp_path: Path) -> None:
    with open_small(tmp_path), a_worker(tmp_path, "write", **NEVER) as worker:
        worker.hear()
        inside = "store._current.parts.joined.log.log._inside"
        worker.say(f"{inside}(lambda: __import__('time').sleep(60))")
        watch = watcher(tmp_path)
        told = until(lambda: watch.view()["appending"])
        assert told["pid"] == worker.process.pid
        assert f"process {worker.process.pid} has been appending for" in top(tmp_path)
        worker.kill()
        assert watch.view()["appending"] is None


def test_deleted_segments_that_a_process_keeps_are_told(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with (
        MaintenancePlugin(Keeping(keep=1)).open(path) as store,
        a_worker(path, "write", **NEVER) as worker,
    ):
        worker.hear()
        fill(store, 160)
        first = segments(path)[0]
        size = first.stat().st_size
        opened, mapped = f"open({str(first)!r}, 'rb')", f"numpy.memmap({str(first)!r})"
        worker.ask(f"globals().update(numpy=__import__('numpy'), opened={opened})")
        worker.ask(f"globals().update(mapped={mapped})")
        assert store.delete_expired().deleted
        assert not first.exists()

        def of_the_worker() -> list[dict[str, Any]]:
            deleted = watcher(path).view()["deleted"]
            return [each for each in deleted if each["pid"] == worker.process.pid]

        # It follows the log in turns, and has let go of a segment of its own soon.
        until(lambda: [each["files"] for each in of_the_worker()] == [1])
        assert of_the_worker()[0]["bytes"] >= size
        assert f"process {worker.process.pid} (python" in top(path)
        worker.ask("globals().pop('opened') and None")
        assert [each["files"] for each in of_the_worker()] == [1], "it is mapped still"
        worker.ask("globals().pop('mapped') and None")
        until(lambda: not of_the_worker())
