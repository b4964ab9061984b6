"""``lakelog scan``: the messages of the log in its order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated

import typer

from lakelog.format.record_batch import Piece, RecordBatch
from lakelog.message import StoredMessage
from lakelog_cli.findings import DamageCounter, walk
from lakelog_cli.options import AsJson, GivenStore
from lakelog_cli.output import MessageRow, exit_if_found, prints, write_messages


@prints(MessageRow)
def scan(
    store: GivenStore,
    start: Annotated[
        int | None, typer.Option(min=0, help="Offset of a record to start at.")
    ] = None,
    end: Annotated[int | None, typer.Option(min=0, help="Offset to stop before.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Most messages to print.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the messages from one offset up to another; damage is reported on stderr.

    The exit code is 1 if damage was found: messages may be missing in between.
    """
    damages = DamageCounter()
    with store.read() as opened:
        messages = islice(_messages(walk(opened, damages, start, end), end), limit)
        write_messages(messages, as_json=as_json)
    exit_if_found(damages.count)


def _messages(pieces: Iterable[Piece], end: int | None) -> Iterator[StoredMessage]:
    for piece in pieces:
        if isinstance(piece, RecordBatch):
            for at in range(len(piece)):
                message = piece.message(at)
                if end is None or message.physical_offset < end:
                    yield message
