"""``lakelog scan``: the messages of the log in its order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated

import typer

from lakelog.format.record_batch import Piece, RecordBatch
from lakelog.message import StoredMessage
from lakelog_cli import findings, options, output


@output.prints(output.MessageRow)
def scan(
    store: options.GivenStore,
    start: Annotated[
        int | None, typer.Option(min=0, help="Offset of a record to start at.")
    ] = None,
    end: Annotated[int | None, typer.Option(min=0, help="Offset to stop before.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Most messages to print.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the messages from one offset up to another; damage is reported on stderr.

    The exit code is 1 if damage was found: messages may be missing in between.
    """
    damages = findings.DamageCounter()
    with store.read() as opened:
        messages = islice(_messages(findings.walk(opened, damages, start, end), end), limit)
        output.write_messages(messages, as_json=as_json)
    output.exit_if_found(damages.count)


def _messages(pieces: Iterable[Piece], end: int | None) -> Iterator[StoredMessage]:
    for piece in pieces:
        if isinstance(piece, RecordBatch):
            for at in range(len(piece)):
                message = piece.message(at)
                if end is None or message.physical_offset < end:
                    yield message
