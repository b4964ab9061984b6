"""``lakelog get``: messages of one queue, from an offset or a time on."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Final

import typer

from lakelog import Store, times
from lakelog_cli import exitcodes, options, output
from lakelog_queues.finding.results import GetResult, GetStatus

EPILOG: Final = times.HELP
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_GO_ON: Final = frozenset(
    {
        GetStatus.FOUND,
        GetStatus.NO_MATCHED_MESSAGE,
        GetStatus.MESSAGE_WAS_REMOVING,
        GetStatus.OFFSET_FOUND_NULL,
    }
)
"""Statuses after which the next offset may have messages; all others report a wrong offset."""


@output.prints(output.MessageRow)
def get(  # each argument is an option of the command
    store: options.GivenStore,
    topic: options.Topic,
    queue: Annotated[int, typer.Argument(metavar="QUEUE", help="The queue id.")],
    *,
    offset: Annotated[
        str | None,
        typer.Option(
            metavar="N|earliest|latest",
            help="Queue offset to begin at; latest is the last message. Default: earliest.",
        ),
    ] = None,
    at: Annotated[
        int | None,
        options.time_option("Begin at the first message stored at this time or later"),
    ] = None,
    most: Annotated[int, typer.Option("--max", min=1, help="Most messages to print.")] = 32,
    tags: options.Tags = None,
    as_json: options.AsJson = False,
) -> None:
    """Print messages of a queue in its order.

    If there are none, stderr has RocketMQ's status and the queue's offsets, and the exit code is 1;
    an unknown topic or queue is wrong usage.
    """
    if offset is not None and at is not None:
        raise typer.BadParameter("give --offset or --at: one of them")
    with store.read() as opened:
        options.check_queue(opened, topic, queue)
        first = _start(opened, topic, queue, offset or EARLIEST, at)
        found = opened.get(topic, queue, first, 1, tags=tags)
        messages = islice(opened.read(topic, queue, first, tags=tags), most)
        if found.status not in _GO_ON or not output.write_messages(messages, as_json=as_json):
            output.print_line(_why_none(found), err=True)
            raise typer.Exit(exitcodes.FOUND)


def _start(store: Store, topic: str, queue: int, offset: str, at: int | None) -> int:
    if at is not None:
        return store.offset_by_time(topic, queue, at)
    minimum, maximum = store.queue_bounds(topic, queue) or (0, 0)
    if offset == EARLIEST:
        return minimum
    if offset == LATEST:
        return max(minimum, maximum - 1)
    try:
        return int(offset)
    except ValueError:
        what = f"--offset {offset} is none of: a whole number, {EARLIEST}, {LATEST}"
        raise typer.BadParameter(what) from None


def _why_none(result: GetResult) -> str:
    held = f"{result.min_offset} to {result.max_offset - 1}"
    holds = f"offsets {held}" if result.max_offset > result.min_offset else "no message"
    return f"{result.status.name}: the queue holds {holds}"
