"""Messages of push consumers stay invisible while their client lives, for longer than 60 s."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import pytest

from lakelog import Message, Store
from lakelog_broker import state as members
from lakelog_broker.broker import Broker
from lakelog_broker.grpc import server
from lakelog_broker.grpc.clients import GrpcClients
from lakelog_broker.grpc.mapping import CODES, proto
from lakelog_broker.grpc.server import RENEWED_MS, Messaging
from lakelog_broker.popping.service import Popping
from lakelog_broker.settings import BrokerSettings

_CLIENT: Final = "c1"


class _Call:
    """The context of a call without a deadline."""

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [("x-mq-client-id", _CLIENT)]

    def time_remaining(self) -> None:
        return None


class _Served:
    """The calls of consumers at a broker of one message, with a clock that the test sets."""

    def __init__(self, store: Store) -> None:
        self.now_ms = 1_700_000_000_000
        broker = Broker(store, BrokerSettings(port=0))
        broker.topics.create("orders", 1)
        store.put(Message("orders", b"one", queue_id=0))
        store.wait_dispatched(timeout_ms=60_000)
        self.broker = broker
        self.clients = GrpcClients(broker)
        popping = Popping(broker, lambda: self.now_ms)
        self.calls = Messaging(broker, popping, self.clients)

    async def connect(self) -> None:
        """Open the client's telemetry stream, which stays open."""
        command = proto("TelemetryCommand")()
        command.settings.subscription.group.name = "group"

        async def requests() -> AsyncIterator[Any]:
            yield command
            await asyncio.Event().wait()

        self.stream = self.clients.telemetry(requests(), _Call())
        await anext(self.stream)

    async def receive(self) -> list[Any]:
        request = proto("ReceiveMessageRequest")(auto_renew=True, batch_size=1)
        request.group.name, request.message_queue.topic.name = "group", "orders"
        request.long_polling_timeout.seconds = 0
        answers = [each async for each in self.calls.receive(request, _Call())]
        return [each.message for each in answers if each.HasField("message")]

    async def passed(self, by_ms: int) -> None:
        """Let time pass, and all that is due be renewed."""
        self.now_ms += by_ms
        for _ in range(4):
            await asyncio.sleep(0)


@pytest.fixture
def run(store: Store, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(server, "RENEW_INTERVAL_S", 0)

    def run(work: Callable[[_Served], Awaitable[None]]) -> None:
        async def main() -> None:
            served = _Served(store)
            await served.connect()
            renewing = asyncio.create_task(served.calls.renew())
            await work(served)
            renewing.cancel()

        asyncio.run(main())

    return run


def test_a_message_is_renewed_until_it_is_acknowledged(run: Any) -> None:
    async def work(served: _Served) -> None:
        [message] = await served.receive()
        for _ in range(10):
            await served.passed(RENEWED_MS - 1)
            assert await served.receive() == []
        request = proto("AckMessageRequest")()
        request.group.name, request.topic.name = "group", "orders"
        handle = message.system_properties.receipt_handle
        request.entries.add(receipt_handle=handle)
        answer = await served.calls.acknowledge(request, _Call())
        assert answer.status.code == CODES["OK"], "the handle of the hand-out stays the same"
        await served.passed(10 * RENEWED_MS)
        assert await served.receive() == []

    run(work)


def test_a_message_of_a_client_that_left_comes_again(run: Any) -> None:
    async def work(served: _Served) -> None:
        await served.receive()
        await served.passed(RENEWED_MS - 1)
        await served.clients.terminated(None, _Call())
        [again] = await served.receive()
        assert again.system_properties.delivery_attempt == 2

    run(work)


def test_a_message_of_a_silent_client_comes_again(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stream is still open, as if its machine had vanished."""

    async def work(served: _Served) -> None:
        await served.receive()
        with monkeypatch.context() as late:
            late.setattr(members, "SILENCE_MS", -1000)
            served.broker.members.remove_silent()
        await served.passed(1)
        await served.clients.heartbeat(None, _Call())
        [again] = await served.receive()
        assert again.system_properties.delivery_attempt == 2
        for _ in range(3):
            await served.passed(RENEWED_MS - 1)
            assert await served.receive() == []

    run(work)


def test_renewal_has_an_end(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_RENEW_LIMIT_S", -1)

    async def work(served: _Served) -> None:
        await served.receive()
        await served.passed(RENEWED_MS - 1)
        assert await served.receive() == []
        await served.passed(2)
        assert len(await served.receive()) == 1

    run(work)
