"""A client of a broker that sends single requests of the remoting protocol."""

from __future__ import annotations

import time

from lakelog_broker.remoting.requests import RequestCode
from lakelog_replication.remoting import Response, call
from lakelog_replication.settings import Address


def send(address: str, topic: str, body: bytes, queue_id: int = 0) -> int:
    """Send a message; its queue offset. Raises ``BrokerRefused``."""
    return int(answer_to(address, topic, body, queue_id).fields["queueOffset"])


def answer_to(
    address: str, topic: str, body: bytes, queue_id: int = 0, **properties: object
) -> Response:
    """Send a message with properties; the whole answer. Raises ``BrokerRefused``."""
    fields = {
        "a": "producers",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": str(time.time_ns() // 1_000_000),
        "h": "0",
        "i": "".join(f"{name}\x01{value}\x02" for name, value in properties.items()),
        "j": "0",
    }
    return call(Address.parse(address), RequestCode.SEND_MESSAGE_V2, fields, body)
