"""Reads the metrics of a store at each scrape of Prometheus.

Positions, lags, processes and disks are those of ``lakelog top``: they come from the shared page
and the status file, so any process may collect them, beside any owner. Messages and groups come
from the queues, which a reader of the store serves. ``lakelog metrics`` serves all by HTTP.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Annotated, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import attrs
import typer
from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import lakelog
from lakelog.errors import LakelogError, NoOwner, NotAStore, StoreError
from lakelog.runtime.threads import started
from lakelog_cli.output import is_terminal, print_line, print_lines
from lakelog_daemon.connection_limits import Admission, ConnectionLimits, RareLines
from lakelog_daemon.watching import Watcher

_LOG: Final = logging.getLogger("lakelog")
_MOST_CONNECTIONS: Final = 64
_TIMEOUT_S: Final = 10.0
_RETRY_S: Final = 0.1


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
            is_open = {(): float(view is not None)}
            yield self._metric("up", "whether a process has the store open", is_open)
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
        is_well = {(): float(view.get("health") == "ok")}
        yield self._metric("healthy", "whether nothing is wrong; see lakelog top", is_well)
        if "positions" in view:
            yield from self._of_positions(view["positions"])
        if "lags" in view:
            lags = view["lags"]
            found = {"flush": lags["flush_bytes"], "dispatch": lags["dispatch_bytes"]}
            followers = lags.get("followers", {}).items()
            found |= {f"follower {follower}": lag for follower, lag in followers}
            yield self._metric("lag_bytes", "bytes behind the log", found, "what")
        disks = view.get("disks", ())
        used = {each["path"]: each["used_ratio"] for each in disks}
        free = {each["path"]: each["free_bytes"] for each in disks}
        yield self._metric("disk_used_ratio", "used share of a disk", used, "path")
        yield self._metric("disk_free_bytes", "free bytes of a disk", free, "path")
        processes = view.get("processes", ())
        memory = {each["name"]: each.get("rss_bytes") or 0 for each in processes}
        cpu = {each["name"]: (each.get("cpu_percent") or 0) / 100 for each in processes}
        yield self._metric("process_rss_bytes", "memory", memory, "process")
        yield self._metric("process_cpu_ratio", "used share of a core", cpu, "process")
        members = len(view.get("members", ())) + view.get("members_not_seen", 0)
        yield self._metric("processes", "processes that have the store open", {(): members})

    def _of_positions(self, positions: Mapping[str, int]) -> Iterator[Metric]:
        names = ("minimum", "appended", "committed", "flushed", "readable", "dispatched")
        offsets = {name: positions[name] for name in names}
        yield self._metric("offset_bytes", "positions in the log, in bytes", offsets, "position")
        for name, words, value in (
            ("records", "records appended since the store was opened", positions["records"]),
            ("syncs", "syncs of the log since the store was opened", positions["syncs"]),
            ("sync_seconds", "time spent in them", positions["sync_us"] * 1e-6),
        ):
            yield self._metric(name, words, {(): value}, kind=CounterMetricFamily)

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
        totals = Counter[str]()
        for (topic, _), end in ends.items():
            totals[topic] += end
        words = "messages of a topic since its creation"
        yield self._metric("messages", words, totals, "topic", kind=CounterMetricFamily)
        behind = {
            (group, topic): sum(
                max(0, ends.get((topic, queue_id), 0) - offset)
                for queue_id, offset in offsets.items()
            )
            for group, topics in groups.items()
            for topic, offsets in topics.items()
        }
        words = "messages that a consumer group has not acknowledged"
        yield self._metric("group_lag_messages", words, behind, "group", "topic")

    def _metric(
        self,
        name: str,
        words: str,
        values: Mapping[Any, float],
        *labels: str,
        kind: type[CounterMetricFamily | GaugeMetricFamily] = GaugeMetricFamily,
    ) -> Metric:
        """A metric with one value for each value of a label, or for each tuple of their values."""
        made = kind(f"lakelog_{name}", words, labels=["store", *labels])
        for key, value in values.items():
            made.add_metric([self._name, *((key,) if isinstance(key, str) else key)], value)
        return made


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


class _Handler(WSGIRequestHandler):
    """Serves one request; a peer that is silent, or reads nothing, is disconnected."""

    timeout = _TIMEOUT_S
    server: _Server

    def get_environ(self) -> dict[str, Any]:
        """Called once the request has come."""
        self.server.prove(self.connection)
        return super().get_environ()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # as in the base class
        """Log nothing."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection, and ``_MOST_CONNECTIONS`` of them."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._lock = threading.Lock()
        self._places: dict[Any, Admission] = {}
        self._limits = ConnectionLimits(
            most=_MOST_CONNECTIONS,
            first_request_s=_TIMEOUT_S,
            idle_s=_TIMEOUT_S,
            lines=RareLines(_LOG),
        )
        super().__init__(address, handler)

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection."""
        try:
            return super().get_request()
        except OSError:  # such as no free descriptor: the base class would try again at once
            time.sleep(_RETRY_S)
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is a place for a connection."""

        def end() -> None:
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

        with self._lock:
            place = self._limits.admit(client_address[0], end)
            if place is not None:
                self._places[request] = place
        return place is not None

    def prove(self, request: Any) -> None:
        """Note that the request of a connection has come."""
        with self._lock:
            place = self._places[request]
            self._limits.prove(place)
            self._limits.wait(place, 1)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        with self._lock:
            place = self._places.pop(request, None)
            if place is not None:
                self._limits.leave(place)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: the peer has left, or was too slow."""


@attrs.define(eq=False, repr=False)
class MetricsFollower:
    """Serves the metrics of stores by HTTP until it is stopped; each request reads them anew.

    :ivar port: the bound port, once started
    """

    stores: Sequence[Path]
    settings: MetricsSettings
    port: int = 0
    _collectors: list[StoreCollector] = attrs.field(factory=list)
    _server: _Server | None = None
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
            self._server = make_server(*address, make_wsgi_app(registry), _Server, _Handler)
        except OSError as error:
            raise PortInUse(f"{address[0]}:{address[1]} cannot be bound: {error}") from None
        self.port = self._server.server_port
        self._thread = started(threading.Thread(target=self._server.serve_forever, daemon=True))

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
        if not os.path.isdir(store):  # a mistyped path would be reported as down for ever
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
    with ExitStack() as stack:
        for store in stores:
            registry.register(stack.enter_context(closing(StoreCollector(store, str(store)))))
        return generate_latest(registry).decode()
