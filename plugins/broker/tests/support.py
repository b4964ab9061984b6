"""A served broker with a client of a few lines; and one at which nothing happens by itself."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import attrs

import lakelog
from lakelog import Message
from lakelog_broker.broker import Broker
from lakelog_broker.codes import ResponseCode
from lakelog_broker.embedded import running_broker
from lakelog_broker.remoting.frame import RemotingCommand, decode_frame, encode_frame
from lakelog_broker.remoting.requests import RequestCode
from lakelog_broker.security import remoting_signature
from lakelog_broker.settings import BrokerSettings
from lakelog_queues.delays.service import DelayService
from lakelog_queues.delays.timers import Timers
from lakelog_queues.store import delays_of
from lakelog_rocketmq.fastjson import parse_object

PATIENCE_S = 60.0

AtABroker: TypeAlias = Callable[..., Awaitable[None]]
"""A test in an event loop: its first arguments are a broker and a client of it."""


@contextlib.asynccontextmanager
async def served(folder: Path, **settings: Any) -> AsyncIterator[Broker]:
    """A broker over the store in ``folder``, at a free port."""
    with lakelog.open(folder / "store", segment_size_bytes=1 << 20) as store:
        async with running_broker(store, BrokerSettings(port=0, **settings)) as broker:
            yield broker


def run_at_a_broker(folder: Path, work: AtABroker, /, **settings: Any) -> None:
    async def main() -> None:
        async with served(folder, **settings) as broker:
            client = await Client.to(broker)
            try:
                await work(broker, client)
            finally:
                client.close()

    asyncio.run(main())


def at_a_broker(**settings: Any) -> Callable[[AtABroker], Callable[..., None]]:
    """Make a test with a broker of these settings; further arguments are fixtures."""

    def decorate(work: AtABroker) -> Callable[..., None]:
        def test(tmp_path: Path, **given: Any) -> None:
            async def with_fixtures(broker: Broker, client: Client) -> None:
                await work(broker, client, **given)

            run_at_a_broker(tmp_path, with_fixtures, **settings)

        _, _, *fixtures = inspect.signature(work).parameters.values()
        first, *_ = inspect.signature(test).parameters.values()
        vars(test)["__signature__"] = inspect.Signature([first, *fixtures])
        return test

    return decorate


class Client:
    """A connection that sends frames.

    :ivar reader: the bytes of the broker; :ivar writer: those to it
    :ivar skipped: the number of requests of the broker that came before responses
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.skipped = 0
        self._opaque = 0

    @classmethod
    async def to(cls, broker: Broker, tls: ssl.SSLContext | None = None) -> Client:
        host, port = broker.address.rsplit(":", 1)
        async with asyncio.timeout(PATIENCE_S):
            return cls(*await asyncio.open_connection(host, int(port), ssl=tls))

    async def receive(self) -> RemotingCommand:
        """The next frame; raises ``IncompleteReadError`` when the broker has closed."""
        async with asyncio.timeout(PATIENCE_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return decode_frame(await self.reader.readexactly(size))

    async def call(self, code: int, body: bytes = b"", /, **fields: str) -> RemotingCommand:
        """Send a request and return its response."""
        self._opaque += 1
        self.writer.write(encode_frame(RemotingCommand(code, self._opaque, 0, fields, body)))
        while not (found := await self.receive()).is_response:
            self.skipped += 1
        assert found.opaque == self._opaque
        return found

    async def content(self, code: int, **fields: str) -> dict[str, Any]:
        """The JSON in the response to a request that is not refused."""
        found = await self.call(code, **fields)
        assert found.code == ResponseCode.SUCCESS, found.remark
        return parse_object(found.body)

    async def send(self, topic: str, body: bytes = b"x", **more: str) -> RemotingCommand:
        """Send a message."""
        fields = {"a": "group", "b": topic, "c": "TBW102", "d": "4", "e": "0", "g": "1"}
        return await self.call(310, body, **{**fields, **more})

    async def beat(self, **content: Any) -> RemotingCommand:
        """Send a heartbeat with this content."""
        return await self.call(RequestCode.HEART_BEAT, json.dumps(content).encode())

    async def is_served(self) -> bool:
        return (await self.send("orders")).code == ResponseCode.SUCCESS

    async def ended(self) -> bool:
        """Wait until the broker closes the connection, and close this side."""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE_S):
                while await self.reader.read(1 << 16):
                    pass
        self.close()
        return True

    def close(self) -> None:
        self.writer.close()


async def call_as(
    client: Client, key: str, code: int, fields: dict[str, str], body: bytes = b""
) -> int:
    """Send a request with the signature of a user whose secret is the access key.

    :param key: without one, the request is not signed
    :returns: the code of the response
    """
    if key:
        request = RemotingCommand(code, fields={**fields, "AccessKey": key}, body=body)
        signature = remoting_signature(key, request).decode()
        fields = {**request.fields, "Signature": signature}
    return (await client.call(code, body, **fields)).code


# --- a broker over a store whose clock a test sets; nothing runs beside the test ---


@attrs.define
class SetClock:
    """A clock that stands still until a test moves it."""

    now_ms: int

    def __call__(self) -> int:
        return self.now_ms


class OnRequest(Broker):
    """A broker whose delayed messages come on request only, as after a new open of its store."""

    def __init__(self, store: lakelog.Store, settings: BrokerSettings) -> None:
        super().__init__(store, settings)
        service = delays_of(store)
        assert service is not None
        service.end()
        self.delays = DelayService(attrs.evolve(service.access))

    @property
    def timers(self) -> Timers:
        """The timer messages that wait."""
        return self.delays.timers


def broker_over(store: lakelog.Store, **settings: Any) -> OnRequest:
    """A broker that delivers only on request."""
    return OnRequest(store, BrokerSettings(**settings))


def set_clocks(broker: OnRequest, system: SetClock, steady: SetClock | None = None) -> None:
    """Let delays follow these clocks."""
    for each in (broker.delays.levels, broker.delays.timers):
        each._clock, each._steady = system, steady or system


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


def message_of_a_client(body: bytes, topic: str = "Orders", **properties: str) -> Message:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return Message(topic, body, properties=text.encode(), queue_id=0)


def put(broker: Broker, body: bytes, topic: str = "Orders", **properties: str) -> None:
    """Put a message of a client with these properties."""
    broker.appender.append(message_of_a_client(body, topic, **properties))
    dispatched(broker.store)


def save(broker: Broker) -> None:
    """Save all progress, as a running broker does every few seconds."""
    asyncio.run(broker.save())
    if isinstance(broker, OnRequest):
        broker.delays.save()


def settle(part: Any, clock: SetClock) -> int:
    """Let delays or timers deliver all that is due; returns when the next is."""
    while (due := part.deliver_due()) <= clock.now_ms:
        pass
    return int(due)
