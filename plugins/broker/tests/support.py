"""A served broker and a client of a few lines."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import lakelog
from lakelog_broker.broker import Broker
from lakelog_broker.remoting.frame import RemotingCommand, decode_frame, encode_frame
from lakelog_broker.running import running_broker
from lakelog_broker.settings import BrokerSettings

PATIENCE_S = 60.0


@contextlib.asynccontextmanager
async def served(folder: Path, **settings: Any) -> AsyncIterator[Broker]:
    """A broker over a new store in ``folder``, at a free port."""
    with lakelog.open(folder / "store", segment_size_bytes=1 << 20) as store:
        async with running_broker(store, BrokerSettings(port=0, **settings)) as broker:
            yield broker


class Client:
    """A connection that sends frames.

    :ivar reader: the bytes of the broker; :ivar writer: those to it
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._opaque = 0

    @classmethod
    async def to(cls, broker: Broker, tls: ssl.SSLContext | None = None) -> Client:
        """Connect."""
        host, port = broker.address.rsplit(":", 1)
        async with asyncio.timeout(PATIENCE_S):
            return cls(*await asyncio.open_connection(host, int(port), ssl=tls))

    async def receive(self) -> RemotingCommand:
        """The next frame; raises ``IncompleteReadError`` when the broker has closed."""
        async with asyncio.timeout(PATIENCE_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return decode_frame(memoryview(await self.reader.readexactly(size)))

    async def call(self, code: int, body: bytes = b"", /, **fields: str) -> RemotingCommand:
        """Send a request and return its response."""
        self._opaque += 1
        self.writer.write(encode_frame(RemotingCommand(code, self._opaque, 0, fields, body)))
        while not (found := await self.receive()).is_response:
            pass
        assert found.opaque == self._opaque
        return found

    async def send(self, topic: str, body: bytes = b"x", **more: str) -> RemotingCommand:
        """Send a message."""
        fields = {"a": "group", "b": topic, "c": "TBW102", "d": "4", "e": "0", "g": "1"}
        return await self.call(310, body, **{**fields, **more})

    async def ended(self) -> bool:
        """Wait until the broker closes the connection, and close this side."""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE_S):
                while await self.reader.read(1 << 16):
                    pass
        self.close()
        return True

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()
