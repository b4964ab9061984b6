"""``lakelog top``: beside ``serve``, beside another owner, and without an owner."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from core.tests.store.support import open_small
from lakelog import Message
from lakelog.files.filesystem import RealFileSystem
from lakelog.maintenance.pins import Pin, write_pin
from lakelog.processes.shared_page import PageView
from lakelog_cli.app import make_app
from lakelog_cli.commands.top import frame
from lakelog_daemon import status, watching
from lakelog_daemon.status import StatusReporter
from lakelog_daemon.watching import Watcher
from lakelog_testing.threads import hold
from plugins.tools.tests.daemon.support import IDLE, QUICK, Serving, service, serving
from tests.support.waiting import until


def top(path: Path, *more: str, code: int = 0) -> str:
    arguments = ["top", str(path), "--interval", "0.2", "--set", QUICK[0], *more]
    done = CliRunner(env={"COLUMNS": "200"}).invoke(make_app(), arguments)
    assert done.exit_code == code, done.output
    return done.output


def watcher(path: Path) -> Watcher:
    return Watcher(RealFileSystem(), path, path / "commitlog")


def test_beside_serve_it_shows_all_that_serve_says(tmp_path: Path) -> None:
    with serving(tmp_path, *service("idle", IDLE)) as serve:
        child = serve.running("idle")
        write_pin(RealFileSystem(), serve.store, Pin("lake", 0, 0))
        until(lambda: serve.row("owner").get("cpu_percent") is not None)
        until(lambda: "lake" in serve.status()["lags"]["followers"])
        seen = json.loads(top(serve.store, "--json"))
        shown = top(serve.store, "--once")
        assert serve.stop() == 0
        owner = serve.process.pid
    assert (seen["served_by"], seen["state"], seen["health"]) == ("serve", "serving", "ok")
    assert [row["pid"] for row in seen["processes"]] == [owner, child]
    assert seen["lags"]["followers"] == {"lake": 0}
    assert seen["disks"][0]["free_bytes"] > 0
    assert f"serve, process {owner}  serving  ok" in shown
    assert "lake 0 B behind" in shown
    assert f"idle     {child}" in shown
    assert "nobody has this store open" in top(serve.store, code=3)


def test_beside_another_owner_it_shows_the_page_and_what_linux_says(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", flush="inline") as store:
        watch = watcher(tmp_path / "s")
        assert watch.needs_two
        assert "rates" not in watch.view()
        end = [store.put(Message("t", b"x" * 100)).end_offset for _ in range(10)][-1]
        view = watch.view()
        assert not watch.needs_two
        told = json.loads(top(tmp_path / "s", "--json"))
    assert view["served_by"] is None
    assert (view["pid"], view["state"]) == (os.getpid(), "open")
    assert view["positions"]["flushed"] == view["positions"]["appended"] == end
    assert view["positions"]["syncs"] == 10
    assert view["rates"]["flushed"] > 0
    assert view["flush"]["mean_ms"] > 0
    assert view["processes"][0]["rss_bytes"] > 1 << 20
    assert told["rates"]["flushed"] == 0
    assert told["positions"]["flushed"] == end


def test_the_word_of_a_serve_that_is_gone_or_stuck_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path) as serve:
        path = serve.store
        assert watcher(path).view()["served_by"] == "serve"
        monkeypatch.setattr(watching, "FRESH_MS", 0)
        assert watcher(path).view()["served_by"] is None
        serve.process.kill()
        serve.process.wait()
    monkeypatch.undo()
    with open_small(path, segment_size_bytes="64KiB"):
        assert watcher(path).view()["served_by"] is None
    for nonsense in (b"", b"[]", b"{", b'{"version": 1, "pid": "x", "heartbeat_ms": 1}'):
        (path / "lakelog/serve.json").write_bytes(nonsense)
        with open_small(path, segment_size_bytes="64KiB"):
            assert watcher(path).view()["served_by"] is None


def drawn(width: int = 200, **view: Any) -> str:
    from rich.console import Console

    console = Console(width=width, record=True, file=io.StringIO())
    plain = {"served_by": "serve", "path": "/s", "pid": 1, "state": "serving", "disks": []}
    console.print(frame({**plain, **view}))
    return console.export_text()


def test_what_other_processes_call_themselves_cannot_draw() -> None:
    row = {"name": "\x1b[2J[red]x", "kind": "service", "pid": None, "state": "waiting"}
    text = drawn(
        health="degraded",
        problems=["it\nis"],
        processes=[row | {"health": "restarting", "restarts": 3, "last_exit": "ended"}],
    )
    assert "\\x1b[2J[red]x" in text
    assert "it\\nis" in text
    assert "no lakelog" in text


@pytest.mark.parametrize("width", [10, 20, 39, 60, 200])
def test_where_it_is_narrow_it_leaves_columns_out_and_cuts_no_number(width: int) -> None:
    row = {"name": "owner", "kind": "owner", "pid": 1234567, "state": "running", "health": "ok"}
    names = ("appended", "flushed", "dispatched", "records", "syncs")
    words = drawn(
        width,
        health="ok",
        problems=[],
        positions=dict.fromkeys(names, 123_456_789_012),
        lags={"flush_bytes": 0, "dispatch_bytes": 0, "followers": {}},
        processes=[row | {"rss_bytes": 1 << 30, "cpu_percent": 12.5, "says": "many " * 99}],
    ).split()
    if width >= 20:
        assert {"123456789012", "1234567"} <= set(words)
    for word in words:
        assert "\N{HORIZONTAL ELLIPSIS}" not in word or word.startswith(
            ("m", "\N{HORIZONTAL ELLIPSIS}")
        )
    assert ("12.5" in words) == (width >= 60)


def test_it_shows_groups_and_the_rates_of_the_last_frames(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        store.put_batch([Message("orders", b"x", queue_id=0) for _ in range(9)])
        store.wait_dispatched()
        with store.consumer("billing", "orders", start="earliest") as consumer:
            consumer.poll(2)
            consumer.commit()
        view = json.loads(top(tmp_path, "--json"))
    assert view["groups"] == [{"group": "billing", "topic": "orders", "behind": 7}]
    history = [{"records": each, "appended": each * 100.0} for each in (0.0, 1.0, 8.0)]
    text = drawn(**{**view, "history": history})
    assert "records   ▁█  at most 8/s" in text
    assert "at most 800 bytes/s" in text
    assert ["billing", "orders", "7"] in [line.split() for line in text.splitlines()]


def test_an_owner_that_is_held_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path) as serve:
        until(lambda: serve.row("owner"))
        watch = watcher(serve.store)
        monkeypatch.setattr(watching, "SILENT_MS", 1000)
        assert watch.view()["health"] == "ok"
        hold(serve.process.pid)
        try:
            view: dict[str, Any] = until(lambda: _degraded(watch.view()))
            shown = top(serve.store, "--once")
        finally:
            os.kill(serve.process.pid, signal.SIGCONT)
        until(lambda: watch.view()["health"] == "ok")
    assert view["served_by"] == "serve"
    assert re.match(r"no heartbeat for \d+ s: process ", view["problems"][0])
    assert (view["processes"][0]["state"], view["processes"][0]["health"]) == ("stopped", "hanging")
    assert "no heartbeat for " in shown
    assert "degraded" in shown


def _degraded(view: dict[str, Any]) -> dict[str, Any] | None:
    return view if view["health"] == "degraded" else None


# --- the cost of an idle serve, and the names in its status file ---

_log = logging.getLogger(__name__)
MOST_MIB = 150
MOST_PERCENT = 1.0


@pytest.mark.slow
def test_an_idle_serve_costs_little(tmp_path: Path) -> None:
    with serving(tmp_path, settings=("serve.status_interval_ms=1000",)) as serve:
        mib, percent = cost(serve, seconds=20)
        assert serve.stop() == 0
    _log.warning("%.0f MiB, %.2f %% of a core", mib, percent)
    assert mib < MOST_MIB
    assert percent < MOST_PERCENT


def cost(serve: Serving, seconds: float) -> tuple[float, float]:
    """Memory as PSS in MiB, and CPU time in per cent of a core; the sum of all its processes."""
    owner = psutil.Process(serve.process.pid)
    family = [owner, *owner.children(recursive=True)]
    time.sleep(3)
    before = sum(sum(each.cpu_times()[:2]) for each in family)
    time.sleep(seconds)
    used = sum(sum(each.cpu_times()[:2]) for each in family) - before
    return sum(each.memory_full_info().pss for each in family) / 2**20, used / seconds * 100


def test_every_name_of_the_status_file_is_described(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        files = RealFileSystem()
        page = PageView.open(files, store.path)
        assert page is not None
        log = store.path / "commitlog"
        found = StatusReporter(files, store, log, page, list, lambda: 0).status(status.SERVING)
    described = set(re.findall(r"\w+", status.__doc__ or ""))
    names = {*found, *found["positions"], *found["lags"], *found["disks"][0], *found["flush"]}
    names |= {*found["processes"][0], *found["rates"]}
    assert names - described == set()
