"""Formats messages as lines of text, or as JSON with lakelog's field names."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any, Final

import typer

from lakelog.message import StoredMessage
from lakelog_cli.output import shown, write_lines

SHOWN: Final = 60
"""Number of characters (or bytes, if binary) of a body in a line of text."""


def write_messages(messages: Iterable[StoredMessage], *, as_json: bool) -> None:
    """Write each message as it arrives."""
    for message in messages:
        if as_json:
            write_lines([message_line(message)])
        else:
            typer.echo(for_people(message))


def message_line(message: StoredMessage) -> dict[str, Any]:
    """A message with the field names of ``lakelog.StoredMessage``."""
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
    """The body as text if it is UTF-8, otherwise in base64 under another name."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode("ascii")}


def for_people(message: StoredMessage) -> str:
    """The position, tags, keys, and the start of the body."""
    place = f"{message.physical_offset} {message.topic}/{message.queue_id}@{message.queue_offset}"
    words = [f"tags={message.tags}"] if message.tags else []
    words += [f"keys={','.join(message.keys)}"] if message.keys else []
    return f"{shown(' '.join([place, *words]))} {_start(message.body)}"


def _start(body: bytes) -> str:
    r"""The start of a body, in quotes: as text if it is UTF-8, otherwise as a bytes literal.

    >>> _start("für 5 €".encode()), _start(b"\xe4"), _start(b"a\n\x1b[2J")
    ("'für 5 €'", "b'\\xe4'", "'a\\n\\x1b[2J'")
    """
    try:
        whole: str | bytes = body.decode()
    except UnicodeDecodeError:
        whole = body
    more = f"... ({len(body)} bytes)" if len(whole) > SHOWN else ""
    return f"{whole[:SHOWN]!r}{more}"
