"""The settings of a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs

DEFAULT_PORT: Final = 9876
"""The port of RocketMQ's name server, which clients expect."""

DEFAULT_GRPC_PORT: Final = 8081
"""The port of RocketMQ's proxy."""


@attrs.frozen(kw_only=True)
class BrokerSettings:
    """How a broker serves its clients.

    :ivar host: the address to bind, and the one that routes give to clients
    :ivar port: of name server and broker, for remoting clients; 0 is any free one
    :ivar name: the broker's name in routes; :ivar cluster: the cluster's
    :ivar default_queues: queues of a topic that a client creates by sending to it
    :ivar auto_create_topics: whether a send or a query of a route creates a missing topic
    :ivar grpc_port: of gRPC clients, plain and TLS; 0 is any free one, ``None`` is no such port
    :ivar certificate: file of the certificate for TLS, in PEM; without one, one is made
    :ivar key: file of its key
    :ivar region: the property ``MSG_REGION`` of responses
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    name: str = "broker-a"
    cluster: str = "DefaultCluster"
    default_queues: int = 8
    auto_create_topics: bool = True
    grpc_port: int | None = None
    certificate: Path | None = None
    key: Path | None = None
    region: str = "DefaultRegion"
