"""``lakelog broker``: serve a store to RocketMQ's clients."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer

import lakelog
from lakelog.errors import LakelogError
from lakelog_broker.settings import DEFAULT_PORT, BrokerSettings


def broker(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store directory.")],
    host: Annotated[str, typer.Option(help="Address to bind; routes give it to clients.")] = (
        "127.0.0.1"
    ),
    port: Annotated[
        int, typer.Option(help="Port of name server and broker; 0 is any free one.")
    ] = DEFAULT_PORT,
) -> None:
    """Serve a store to RocketMQ's clients, as broker and name server, until SIGTERM or SIGINT."""
    asyncio.run(_serve(store, BrokerSettings(host=host, port=port)))


async def _serve(path: Path, settings: BrokerSettings) -> None:
    from lakelog_broker.running import running_broker

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with lakelog.open(path, mode="owner") as store:
        try:
            async with running_broker(store, settings) as running:
                typer.echo(f"name server and broker: {running.address}")
                await stop.wait()
        except OSError as error:
            raise LakelogError(
                f"{settings.host}:{settings.port} cannot be bound ({error}); is another name "
                "server running? Give another --port"
            ) from error
