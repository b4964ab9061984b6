"""``lakelog top``: a store at work, as it is now."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from lakelog_cli.copylags import copy_lags
from lakelog_cli.opening import assignment
from lakelog_cli.options import AsJson, Assignments, BrokerConf, SettingsFile, StorePath
from lakelog_cli.output import write_document
from lakelog_cli.topview import frame
from lakelog_daemon.watching import Watcher


def top(
    store: StorePath,
    once: Annotated[bool, typer.Option("--once", help="Print one frame, and end.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between frames.")] = 1.0,
    as_json: AsJson = False,
    broker_conf: BrokerConf = None,
    settings: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Watch a store at work: rates, lags, copies, flush latency, disks, who has it open.

    Works beside any living owner; 'lakelog serve' tells most. Ctrl-C ends it. With --json, with
    --once, and where the output is no terminal, one view is printed; its fields are those of
    lakelog/serve.json, and who has the store open: of other users' processes only root sees that.
    Of a folder of copies of several masters, it shows their programs; each copy has its own view.
    Exit code 3 if nobody has the store open.
    """
    arguments = dict(map(assignment, assignments or ()))
    opening: dict[str, Any] = {"broker_conf": broker_conf, "settings": settings, **arguments}
    watcher = Watcher.of(store, **opening)

    def with_copies(view: dict[str, Any]) -> dict[str, Any]:
        return {**view, "replication": copy_lags(watcher.path, **opening)}

    console = Console(markup=False, highlight=False)
    if as_json or once or not console.is_terminal:
        view = with_copies(_single(watcher, interval))
        write_document(view) if as_json else console.print(frame(view))
        return
    with Live(
        frame(with_copies(watcher.view())), console=console, auto_refresh=False, screen=True
    ) as live:
        while True:
            time.sleep(interval)
            live.update(frame(with_copies(watcher.view())), refresh=True)


def _single(watcher: Watcher, interval: float) -> dict[str, Any]:
    """One view with rates; where nobody has them ready, it takes a while."""
    if watcher.needs_two:
        watcher.view()
        time.sleep(interval)
    return watcher.view()
