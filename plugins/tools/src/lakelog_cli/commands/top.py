"""``lakelog top``: the present state of a running store."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import attrs
import typer
from rich.console import Console
from rich.live import Live

import lakelog
from lakelog.errors import LakelogError
from lakelog_cli.copylags import copy_lags
from lakelog_cli.grouplags import group_lags
from lakelog_cli.opening import assignment
from lakelog_cli.options import AsJson, Assignments, BrokerConf, SettingsFile, StorePath
from lakelog_cli.output import write_document
from lakelog_cli.printed import prints
from lakelog_cli.rows.state import TopView
from lakelog_cli.topkeys import Controls, keyboard
from lakelog_cli.topview import frame
from lakelog_daemon.watching import Watcher

_HISTORY: Final = 60
"""Frames whose rates are shown."""


@prints(TopView, is_document=True)
def top(
    store: StorePath,
    once: Annotated[bool, typer.Option("--once", help="Print one frame, and end.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between frames.")] = 1.0,
    as_json: AsJson = False,
    broker_conf: BrokerConf = None,
    settings: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Show a store in use: rates, lags of groups and copies, flush latency, disks.

    Any owner can be shown; 'lakelog serve' reports most. Keys: s for the next order of the tables,
    / for a filter by name (Enter ends it, Escape removes it), q to quit. With --json, with --once,
    and if the output is no terminal, one view is printed. It has the fields of lakelog/serve.json,
    and the processes that have the store open; only root sees those of other users. For a folder of
    copies of several masters, it shows their programs; each copy has its own view.
    Exit code 3 if no process has the store open.
    """
    arguments = dict(map(assignment, assignments or ()))
    opening: dict[str, Any] = {"broker_conf": broker_conf, "settings": settings, **arguments}
    watcher = Watcher.of(store, **opening)

    history: deque[dict[str, float]] = deque(maxlen=_HISTORY)

    def with_lags(view: dict[str, Any]) -> dict[str, Any]:
        history.append(view.get("rates", {}))
        groups = _groups(watcher.path, opening)
        return {**view, "replication": copy_lags(watcher.path, **opening), "groups": groups}

    console = Console(markup=False, highlight=False)
    if as_json or once or not console.is_terminal:
        view = with_lags(_single(watcher, interval))
        write_document(view) if as_json else console.print(frame(view))
        return
    _watch(console, interval, lambda: {**with_lags(watcher.view()), "history": history})


def _watch(console: Console, interval_seconds: float, look: Callable[[], dict[str, Any]]) -> None:
    """Show frames until the reader quits; a key changes the frame at once, the numbers in time."""
    controls, view = Controls(), look()
    with (
        keyboard() as typed,
        Live(frame(view, controls.line), console=console, auto_refresh=False, screen=True) as live,
    ):
        due = time.monotonic() + interval_seconds
        while not controls.is_done:
            controls.press(typed(max(0.0, due - time.monotonic())))
            if time.monotonic() >= due:
                view, due = look(), time.monotonic() + interval_seconds
            live.update(frame(controls.arranged(view), controls.line), refresh=True)


def _groups(path: Path, opening: dict[str, Any]) -> list[dict[str, Any]]:
    """The lags of consumer groups; none of a directory without queues, such as one of copies."""
    try:
        with lakelog.open(path, mode="read", **opening) as reader:
            return [attrs.asdict(each) for each in group_lags(reader)]
    except LakelogError:
        return []


def _single(watcher: Watcher, interval: float) -> dict[str, Any]:
    """One view with rates; without ``serve`` they need two samples, ``interval`` seconds apart."""
    if watcher.needs_two:
        watcher.view()
        time.sleep(interval)
    return watcher.view()
