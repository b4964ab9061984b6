"""Reads the metrics of a store at each scrape of Prometheus.

Positions, lags, processes and disks are those of ``lakelog top``: they come from the shared page
and the status file, so any process may collect them, beside any owner. Messages and groups come
from the queues, which a reader of the store serves. ``lakelog metrics`` serves all by HTTP.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import attrs
import typer
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import lakelog
from lakelog.errors import LakelogError, NoOwner, NotAStore, StoreError
from lakelog_cli.output import is_terminal, print_line, print_lines
from lakelog_daemon.watching import Watcher

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

_MICROSECONDS: Final = 1e-6
_LAGS: Final = {"flush": "flush_bytes", "dispatch": "dispatch_bytes"}


class StoreCollector(Collector):
    """The metrics of one store, each with the label ``store``.

    Register it once for each store: ``REGISTRY.register(StoreCollector("/data/orders"))``, in the
    process that has the store open or in any other one.

    :param name: the value of the label; by default the name of the directory
    :param opening: settings, as for :func:`lakelog.open`
    """

    def __init__(
        self, path: str | os.PathLike[str], name: str | None = None, **opening: Any
    ) -> None:
        self._path = Path(path)
        self._name = name or self._path.resolve().name
        self._opening = opening
        self._watcher: Watcher | None = None
        self._reader: lakelog.Store | None = None
        self._lock = threading.Lock()  # two servers may be scraped at once

    def describe(self) -> Iterable[Metric]:
        """Nothing: each collection checks the names, so that registering reads no store."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The present metrics; without an owner only ``lakelog_up``, and those of the queues."""
        with self._lock:
            view = self._view()
            yield self._gauge("up", "whether a process has the store open", float(view is not None))
            if view is not None:
                yield from self._of_view(view)
            yield from self._of_queues()

    def close(self) -> None:
        """Close the reader of the store, if one was opened."""
        with self._lock:
            reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _view(self) -> dict[str, Any] | None:
        """What ``lakelog top`` shows; ``None`` if no process has the store open."""
        try:
            if self._watcher is None:
                self._watcher = Watcher.of(self._path, **self._opening)
            return self._watcher.view()
        except (NoOwner, StoreError):
            return None

    def _of_view(self, view: Mapping[str, Any]) -> Iterator[Metric]:
        is_well = view.get("health") == "ok"
        yield self._gauge("healthy", "whether nothing is wrong; see lakelog top", float(is_well))
        if "positions" in view:
            yield from self._of_positions(view["positions"])
        if "lags" in view:
            yield self._lags(view["lags"])
        disks = {each["path"]: each for each in view.get("disks", ())}
        used = {path: each["used_ratio"] for path, each in disks.items()}
        free = {path: each["free_bytes"] for path, each in disks.items()}
        yield self._gauges("disk_used_ratio", "used share of a disk", "path", used)
        yield self._gauges("disk_free_bytes", "free bytes of a disk", "path", free)
        processes = {each["name"]: each for each in view.get("processes", ())}
        memory = {name: each.get("rss_bytes") or 0 for name, each in processes.items()}
        cpu = {name: (each.get("cpu_percent") or 0) / 100 for name, each in processes.items()}
        yield self._gauges("process_rss_bytes", "memory", "process", memory)
        yield self._gauges("process_cpu_ratio", "used share of a core", "process", cpu)
        members = len(view.get("members", ())) + view.get("members_not_seen", 0)
        yield self._gauge("processes", "processes that have the store open", members)

    def _of_positions(self, positions: Mapping[str, int]) -> Iterator[Metric]:
        names = ("minimum", "appended", "committed", "flushed", "readable", "dispatched")
        offsets = {name: positions[name] for name in names}
        yield self._gauges("offset_bytes", "positions in the log, in bytes", "position", offsets)
        counters = {
            "records": ("records appended since the store was opened", positions["records"]),
            "syncs": ("syncs of the log since the store was opened", positions["syncs"]),
            "sync_seconds": ("time spent in them", positions["sync_us"] * _MICROSECONDS),
        }
        for name, (words, value) in counters.items():
            counter = CounterMetricFamily(f"lakelog_{name}", words, labels=["store"])
            counter.add_metric([self._name], value)
            yield counter

    def _lags(self, lags: Mapping[str, Any]) -> Metric:
        """The lag of each reader behind the end of the log, in bytes."""
        found = {what: lags[key] for what, key in _LAGS.items()}
        followers = lags.get("followers", {}).items()
        found |= {f"follower {follower}": lag for follower, lag in followers}
        return self._gauges("lag_bytes", "bytes behind the log", "what", found)

    def _of_queues(self) -> Iterator[Metric]:
        """Messages by topic, and unacknowledged messages by consumer group."""
        try:
            if self._reader is None:
                self._reader = lakelog.open(self._path, mode="read", **self._opening)
            reader = self._reader
            ends = {(each.topic, each.queue_id): each.max_offset for each in reader.queues()}
            groups = reader.groups()
        except StoreError:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
            return
        totals: dict[str, int] = {}
        for (topic, _), end in ends.items():
            totals[topic] = totals.get(topic, 0) + end
        messages = CounterMetricFamily(
            "lakelog_messages", "messages of a topic since its creation", labels=["store", "topic"]
        )
        for topic, total in totals.items():
            messages.add_metric([self._name, topic], total)
        lag = GaugeMetricFamily(
            "lakelog_group_lag_messages",
            "messages that a consumer group has not acknowledged",
            labels=["store", "group", "topic"],
        )
        for group, topics in groups.items():
            for topic, offsets in topics.items():
                behind = sum(
                    max(0, ends.get((topic, queue_id), 0) - offset)
                    for queue_id, offset in offsets.items()
                )
                lag.add_metric([self._name, group, topic], behind)
        yield from (messages, lag)

    def _gauge(self, name: str, words: str, value: float) -> Metric:
        gauge = GaugeMetricFamily(f"lakelog_{name}", words, labels=["store"])
        gauge.add_metric([self._name], value)
        return gauge

    def _gauges(self, name: str, words: str, label: str, values: Mapping[str, float]) -> Metric:
        """A metric with one value for each value of ``label``."""
        gauges = GaugeMetricFamily(f"lakelog_{name}", words, labels=["store", label])
        for each, value in values.items():
            gauges.add_metric([self._name, each], value)
        return gauges


class PortInUse(LakelogError):
    """The address cannot be bound."""


@attrs.frozen
class MetricsSettings:
    """The endpoint for Prometheus.

    :ivar host: address to bind
    :ivar port: its port; 0 is any free one
    """

    host: str = attrs.field(default="127.0.0.1", validator=attrs.validators.instance_of(str))
    port: int = attrs.field(
        default=9464,
        validator=[attrs.validators.instance_of(int), attrs.validators.in_(range(1 << 16))],
    )


@attrs.define(eq=False, repr=False)
class MetricsFollower:
    """Serves the metrics of stores by HTTP until it is stopped; each request reads them anew.

    :ivar port: the bound port, once started
    """

    stores: Sequence[Path]
    settings: MetricsSettings
    port: int = 0
    _collectors: list[StoreCollector] = attrs.field(factory=list)
    _server: WSGIServer | None = None
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Bind the port and serve; raises :class:`PortInUse`."""
        registry = CollectorRegistry()
        for store in self.stores:
            collector = StoreCollector(store, str(store) if len(self.stores) > 1 else None)
            self._collectors.append(collector)
            registry.register(collector)
        address = self.settings.host, self.settings.port
        try:
            self._server, self._thread = start_http_server(address[1], address[0], registry)
        except OSError as error:
            raise PortInUse(f"{address[0]}:{address[1]} cannot be bound: {error}") from None
        self.port = self._server.server_port

    def stop(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        if self._thread is not None:
            self._thread.join()
        for each in self._collectors:
            each.close()


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
        text = _printed(stores)
        if is_terminal(sys.stdout):
            print_lines(text.splitlines())
        else:
            sys.stdout.write(text)
        return
    follower = MetricsFollower(stores, MetricsSettings(host, port))
    follower.start()
    print_line(f"http://{host}:{follower.port}/metrics", err=True)
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
