"""``lakelog metrics``: serves the metrics of stores until it is stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry, generate_latest

from lakelog.errors import NotAStore
from lakelog_metrics.collector import StoreCollector
from lakelog_metrics.plugin import MetricsFollower, MetricsSettings


def metrics(
    stores: Annotated[
        list[Path], typer.Argument(metavar="STORE...", help="One or more store directories.")
    ],
    host: Annotated[str, typer.Option(help="Address to bind.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = 9464,
    once: Annotated[bool, typer.Option("--once", help="Print the metrics, and end.")] = False,
) -> None:
    """Serve the metrics of stores to Prometheus, until SIGTERM or Ctrl-C.

    The stores may be open in other processes, such as brokers; they are only read. The address is
    printed on stderr.
    """
    for store in stores:
        if not store.is_dir():  # a mistyped path would be reported as down for ever
            raise NotAStore("no store is here; is the path right?", path=store)
    if once:
        typer.echo(_printed(stores), nl=False)
        return
    follower = MetricsFollower(stores, MetricsSettings(host, port))
    follower.start()
    typer.echo(f"http://{host}:{follower.port}/metrics", err=True)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        ended.wait()
    finally:
        follower.stop()


def _printed(stores: Sequence[Path]) -> str:

    registry = CollectorRegistry()
    collectors = [StoreCollector(store, str(store)) for store in stores]
    for each in collectors:
        registry.register(each)
    text = generate_latest(registry).decode()
    for each in collectors:
        each.close()
    return text
