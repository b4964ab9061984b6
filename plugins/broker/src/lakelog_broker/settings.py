"""The settings of a broker."""

from __future__ import annotations

from typing import Final

import attrs

DEFAULT_PORT: Final = 9876
"""The port of RocketMQ's name server, which clients expect."""


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
    :ivar region: the property ``MSG_REGION`` of responses
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    name: str = "broker-a"
    cluster: str = "DefaultCluster"
    default_queues: int = 8
    auto_create_topics: bool = True
    timer_limit_s: int = 3 * 24 * 3600
    transaction_timeout_s: float = 6.0
    transaction_check_interval_s: float = 30.0
    transaction_check_limit: int = 15
    region: str = "DefaultRegion"
