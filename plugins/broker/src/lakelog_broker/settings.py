"""The settings of a broker."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Final, Literal

import attrs
from attrs import field, validators

from lakelog.errors import SettingsError

DEFAULT_PORT: Final = 9876
"""The port of RocketMQ's name server, which clients expect."""

_PORT: Final = [validators.ge(0), validators.le(65_535)]


@attrs.frozen(kw_only=True)
class BrokerSettings:
    """How a broker serves its clients.

    :ivar host: the address to bind, and the one that routes give to clients
    :ivar port: of name server and broker, for remoting clients; 0 is any free one
    :ivar name: the broker's name in routes; :ivar cluster: the cluster's
    :ivar default_queues: queues of a topic that a client creates by sending to it
    :ivar auto_create_topics: whether a send or a query of a route creates a missing topic
    :ivar timer_limit_s: how many seconds later a timer message may be due
    :ivar transaction_timeout_s: age at which the outcome of a transaction is asked for
    :ivar transaction_check_interval_s: seconds between further requests
    :ivar transaction_check_limit: requests after which a transaction is given up
    :ivar grpc_port: of gRPC clients, plain and TLS; 0 is any free one, ``None`` is no such port
    :ivar region: the property ``MSG_REGION`` of responses and of messages of clients
    :ivar users: the file of users (see :mod:`lakelog_broker.security`)
    :ivar allow_anonymous: whether an address that others reach may be bound without users
    :ivar tls: ``permissive`` takes clients with and without TLS, ``required`` only those with it
    :ivar certificate: a PEM file of the certificate and its chain; the gRPC port makes one
        if there is none
    :ivar key: a PEM file of its private key
    :ivar max_connections: of all ports together, and fewer if the limit of descriptors
        (``ulimit -n``) is low; for a further connection the one of least use ends, or it is refused
    :ivar max_connections_per_address: of one IP address; by default only an address with more than
        half of all connections gives one up for another address
    :ivar first_byte_timeout_s: a connection without a first whole request, such as one in a TLS
        handshake, ends after it
    :ivar idle_timeout_s: a connection ends if no byte comes, or its peer reads nothing, for so long
        (``serverChannelMaxIdleTimeSeconds``)
    :ivar max_waiting_requests: requests of all clients that wait for messages; a further one is
        answered with ``SYSTEM_BUSY`` or ``TOO_MANY_REQUESTS``
    :ivar max_held_bytes: unfinished requests and unread answers of all remoting clients; beyond it
        the connection with most of them ends
    """

    host: str = "127.0.0.1"
    port: int = field(default=DEFAULT_PORT, validator=_PORT)
    name: str = "broker-a"
    cluster: str = "DefaultCluster"
    default_queues: int = field(default=8, validator=validators.ge(1))
    auto_create_topics: bool = True
    timer_limit_s: int = field(default=3 * 24 * 3600, validator=validators.ge(0))
    transaction_timeout_s: float = field(default=6.0, validator=validators.ge(0))
    transaction_check_interval_s: float = field(default=30.0, validator=validators.gt(0))
    transaction_check_limit: int = field(default=15, validator=validators.ge(0))
    grpc_port: int | None = field(default=None, validator=validators.optional(_PORT))
    region: str = "DefaultRegion"
    users: Path | None = None
    allow_anonymous: bool = False
    tls: Literal["off", "permissive", "required"] = "off"
    certificate: Path | None = None
    key: Path | None = None
    max_connections: int = field(default=10_000, validator=validators.ge(1))
    max_connections_per_address: int | None = field(
        default=None, validator=validators.optional(validators.ge(1))
    )
    first_byte_timeout_s: float = field(default=30.0, validator=validators.gt(0))
    idle_timeout_s: float = field(default=120.0, validator=validators.gt(0))
    max_waiting_requests: int = field(default=20_000, validator=validators.ge(1))
    max_held_bytes: int = field(default=256 << 20, validator=validators.ge(1))

    @property
    def reply_topic(self) -> str:
        """The topic of replies to requests of producers; clients derive it from the cluster."""
        return f"{self.cluster}_REPLY_TOPIC"


def refuse_exposed(settings: BrokerSettings) -> None:
    """Raise :class:`SettingsError` if other machines can reach the address.

    Called without users, when every client is an administrator; ``allow_anonymous`` permits it.
    """
    if not settings.allow_anonymous and not _is_loopback(settings.host):
        raise SettingsError(
            f"the broker would serve everybody at {settings.host}: give a users file, "
            "or set allow_anonymous = true, or bind 127.0.0.1"
        )


def _is_loopback(host: str) -> bool:
    """Whether ``host`` is a loopback address, which only this machine can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
