"""The follower and command ``metrics``, and the dispatcher ``tracing``.

OpenTelemetry and Prometheus' client are imported when one is made.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog.errors import LakelogError
from lakelog.hooks import Context, Factory, Kind, NoSettings
from lakelog.hooks.hookspecs import hookimpl

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from lakelog_telemetry.metrics import StoreCollector

NAME: Final = "metrics"


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
        from prometheus_client import CollectorRegistry, start_http_server

        from lakelog_telemetry.metrics import StoreCollector

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


def _make(settings: MetricsSettings, context: Context) -> MetricsFollower:
    return MetricsFollower([context.path], settings)


@hookimpl
def lakelog_followers() -> list[Factory]:
    """Offer ``followers = ["metrics"]``."""
    words = "serves metrics to Prometheus (lakelog metrics)"
    return [Factory(Kind.FOLLOWER, NAME, MetricsSettings, _make, words)]


@hookimpl
def lakelog_cli_commands(app: Any) -> None:
    """Add ``lakelog metrics``."""
    from lakelog_telemetry.metrics import metrics

    app.command()(metrics)


def make_tracing(_settings: NoSettings, context: Context) -> object:
    """Make the dispatcher; that of a reader makes no spans."""
    from lakelog_telemetry.tracing import TracingDispatcher

    return TracingDispatcher(is_silent=context.read_only)


@hookimpl
def lakelog_dispatchers() -> Sequence[Factory]:
    """Offer the dispatcher ``tracing``."""
    summary = "OpenTelemetry spans of dispatched runs"
    return [Factory(Kind.DISPATCHER, "tracing", NoSettings, make_tracing, summary)]
