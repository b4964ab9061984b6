"""``lakelog scan``: the messages of the log in its order."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Any

import typer

from lakelog.cli.opening import open_for
from lakelog.cli.options import AsJson, Assignments, BrokerConf, SettingsFile, StorePath
from lakelog.cli.output import write_lines
from lakelog.cli.walk import walk
from lakelog.codec.recordbatch import RecordBatch
from lakelog.message import StoredMessage
from lakelog.pieces import Piece

SHOWN_BYTES = 60
"""How much of a body a line for people shows."""


def scan(
    store: StorePath,
    start: Annotated[
        int | None, typer.Option(min=0, help="Offset of a record to start at.")
    ] = None,
    end: Annotated[int | None, typer.Option(min=0, help="Offset to stop before.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Print no more messages.")] = None,
    as_json: AsJson = False,
    broker_conf: BrokerConf = None,
    settings: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Print the messages from one offset up to another; damage is told on stderr."""
    with open_for("read", store, broker_conf, settings, assignments) as opened:
        for message in islice(_messages(walk(opened, start, end), end), limit):
            if as_json:
                write_lines([message_line(message)])
            else:
                typer.echo(_for_people(message))


def _messages(pieces: Iterable[Piece], end: int | None) -> Iterator[StoredMessage]:
    for piece in pieces:
        if isinstance(piece, RecordBatch):
            for at in range(len(piece)):
                message = piece.message(at)
                if end is None or message.physical_offset < end:
                    yield message


def message_line(message: StoredMessage) -> dict[str, Any]:
    """A message under the names that ``lakelog.StoredMessage`` has."""
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "size": message.size,
        "message_id": message.message_id,
        **_body(message.body),
        "properties": message.properties,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "born_timestamp_ms": message.born_timestamp_ms,
        "born_host": message.born_host,
        "store_timestamp_ms": message.store_timestamp_ms,
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
    }


def _body(body: bytes) -> dict[str, str]:
    """The body as text if it is UTF-8, and else in base64 under another name."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode("ascii")}


def _for_people(message: StoredMessage) -> str:
    place = f"{message.physical_offset} {message.topic}/{message.queue_id}@{message.queue_offset}"
    words = [f"tags={message.tags}"] if message.tags else []
    words += [f"keys={','.join(message.keys)}"] if message.keys else []
    more = f"... ({len(message.body)} bytes)" if len(message.body) > SHOWN_BYTES else ""
    return " ".join([place, *words, f"{message.body[:SHOWN_BYTES]!r}{more}"])
