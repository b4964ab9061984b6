"""A connection is not read from while it has too many requests or responses in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

import lakelog
from lakelog_broker.broker import Broker
from lakelog_broker.filtering import MAX_BYTES
from lakelog_broker.popping.service import Popping
from lakelog_broker.remoting.consuming import SUBSCRIPTION_FLAG, SUSPEND_FLAG
from lakelog_broker.remoting.frame import RemotingCommand, decode_frame, encode_frame
from lakelog_broker.remoting.requests import RequestCode
from lakelog_broker.remoting.sending import PlainSends
from lakelog_broker.remoting.server import (
    MAX_UNANSWERED_BYTES,
    MAX_UNSENT_BYTES,
    Connection,
    RemotingServer,
)
from lakelog_broker.settings import BrokerSettings

PULLS = 24
BODY_BYTES = 1 << 20
PATIENCE_SECONDS = 60.0


async def eventually(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(broker: Broker) -> AsyncIterator[RemotingServer]:
    server = RemotingServer(broker, lambda: Popping(broker), PlainSends(broker).answer)
    waits = asyncio.create_task(broker.waits.run())
    await server.start()
    try:
        yield server
    finally:
        waits.cancel()
        await server.close()


async def response(reader: asyncio.StreamReader) -> RemotingCommand:
    async with asyncio.timeout(PATIENCE_SECONDS):
        size = int.from_bytes(await reader.readexactly(4), "big")
        return decode_frame(await reader.readexactly(size))


def pull(opaque: int, offset: int, *, waits: bool) -> bytes:
    fields = {
        "consumerGroup": "slow",
        "topic": "Big",
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": str(SUBSCRIPTION_FLAG | (SUSPEND_FLAG if waits else 0)),
        "subscription": "*",
        "commitOffset": "0",
        "suspendTimeoutMillis": "60000",
    }
    return encode_frame(RemotingCommand(RequestCode.PULL_MESSAGE, opaque, 0, fields))


@pytest.mark.parametrize("waits", [False, True])
def test_output_of_a_client_that_does_not_read_is_bounded(
    store: lakelog.Store, waits: bool
) -> None:
    async def run() -> None:
        broker = Broker(store, BrokerSettings(port=0))
        broker.topics.create("Big", 1)
        async with serving(broker) as server:
            reader, writer = await asyncio.open_connection(*broker.address.split(":"), limit=1024)
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a socket
            if not waits:
                put_all()
            writer.write(b"".join(pull(each, 0, waits=waits) for each in range(PULLS)))
            await eventually(lambda: server.connections)
            (connection,) = server.connections
            assert connection._transport is not None
            if waits:
                await eventually(lambda: len(connection._tasks) == PULLS)
                put_all()
            await eventually(lambda: not connection._writable.is_set())
            unsent = connection._transport.get_write_buffer_size()
            assert unsent <= MAX_UNSENT_BYTES + MAX_BYTES + BODY_BYTES
            writer.transport.resume_reading()  # type: ignore[attr-defined]  # of a socket
            found = [await response(reader) for _ in range(PULLS)]
            assert {each.opaque for each in found} == set(range(PULLS))
            assert all(each.code == 0 and each.body for each in found)
            writer.close()

    def put_all() -> None:
        store.put_batch([lakelog.Message("Big", bytes(BODY_BYTES), queue_id=0) for _ in range(8)])
        store.wait_dispatched()

    asyncio.run(run())


def test_requests_without_a_response_are_bounded_and_all_are_answered(
    store: lakelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 40

    async def run() -> None:
        let_go = asyncio.Event()

        async def answer(_connection: Connection, request: RemotingCommand) -> RemotingCommand:
            await let_go.wait()
            return request.response()

        broker = Broker(store, BrokerSettings(port=0))
        async with serving(broker) as server:
            monkeypatch.setattr(server, "handler", lambda _code: answer)
            reader, writer = await asyncio.open_connection(*broker.address.split(":"))
            code = RequestCode.PULL_MESSAGE
            for each in range(count):
                writer.write(encode_frame(RemotingCommand(code, each, body=bytes(BODY_BYTES))))
            await eventually(lambda: server.connections)
            (connection,) = server.connections
            await eventually(lambda: not connection._is_reading)
            for _ in range(50):
                await asyncio.sleep(0)
            held = connection._unanswered_bytes + len(connection._received)
            assert held <= MAX_UNANSWERED_BYTES + 2 * BODY_BYTES + 4096
            let_go.set()
            assert {(await response(reader)).opaque for _ in range(count)} == set(range(count))
            writer.close()

    asyncio.run(run())


def test_requests_in_many_turns_are_all_answered_in_their_order(
    store: lakelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two clients that send very many at once."""
    monkeypatch.setattr("lakelog_broker.remoting.server._TURN_S", 0)
    monkeypatch.setattr("lakelog_broker.remoting.server._SHORT_TURN_S", 0)
    count = 2000

    async def run() -> None:
        broker = Broker(store, BrokerSettings(port=0))
        async with serving(broker) as server:
            code, fields = RequestCode.GET_MAX_OFFSET, {"topic": "t", "queueId": "0"}
            frames = [encode_frame(RemotingCommand(code, each, 0, fields)) for each in range(count)]
            clients = [await asyncio.open_connection(*broker.address.split(":")) for _ in "ab"]
            for _, writer in clients:
                writer.write(b"".join(frames))
            for reader, writer in clients:
                found = [(await response(reader)).opaque for _ in range(count)]
                assert found == list(range(count))
                writer.close()
            assert not server.turns

    asyncio.run(run())
