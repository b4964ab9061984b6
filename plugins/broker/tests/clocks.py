"""A broker over a store whose clock a test sets; nothing runs beside the test."""

from __future__ import annotations

import asyncio

import attrs

import lakelog
from lakelog import Message
from lakelog_broker.broker import Broker
from lakelog_broker.settings import BrokerSettings


@attrs.define
class SetClock:
    """A clock that stands still until a test moves it.

    :ivar now_ms: the time in ms since 1970
    """

    now_ms: int

    def __call__(self) -> int:
        """The time."""
        return self.now_ms


def broker_over(store: lakelog.Store, **settings: object) -> Broker:
    """A broker that delivers only on request."""
    return Broker.over(store, BrokerSettings(**settings))  # type: ignore[arg-type]  # any settings


def dispatched(store: lakelog.Store) -> None:
    """Wait until all puts are in their queues, also those that do not wait for a sync."""
    store.flush()
    assert store.wait_dispatched()


def bodies(store: lakelog.Store, topic: str, queue_id: int = 0) -> list[bytes]:
    """The bodies of all messages of a queue."""
    dispatched(store)
    if store.queue_bounds(topic, queue_id) is None:
        return []
    return [bytes(each.body) for each in store.read(topic, queue_id)]


def put(broker: Broker, body: bytes, topic: str = "Orders", **properties: str) -> None:
    """Put a message of a client with these properties."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    broker.appender.append(Message(topic, body, properties=text.encode(), queue_id=0))
    dispatched(broker.store)


def save(broker: Broker) -> None:
    """Save all progress, as a running broker does every few seconds."""
    asyncio.run(broker.save())
