"""``lakelog consume``: prints messages as a member of a consumer group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import typer

from lakelog import GroupConsumer, StoredMessage
from lakelog_cli import options, output
from lakelog_queues.consumers.consumer import EARLIEST

_WAIT_MS: Final = 500
_BATCH: Final = 32


@output.prints(output.MessageRow)
def consume(  # noqa: PLR0913  # each argument is an option of the command
    store: options.GivenStore,
    group: options.Group,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="One or more topics.")],
    *,
    start: options.Start = EARLIEST,
    most: Annotated[
        int | None, typer.Option("-n", min=1, help="End after this number of messages.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Continue with new messages until Ctrl-C.")
    ] = False,
    tags: options.Tags = None,
    chosen: Annotated[
        str | None,
        typer.Option(
            "--filter",
            metavar="SQL",
            help="Condition on properties, such as \"a > 5 AND region = 'eu'\".",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Print messages as a member of a consumer group, and acknowledge each once it is printed."""
    with (
        store.change() as opened,
        opened.subscribe(
            group, topics, tags=tags, filter=chosen, start=options.start_position(start)
        ) as consumer,
    ):
        opened.wait_dispatched()
        output.write_messages(_acknowledged(consumer, most, follow=follow), as_json=as_json)


def _acknowledged(
    consumer: GroupConsumer, most: int | None, *, follow: bool
) -> Iterator[StoredMessage]:
    """Yield messages; each is acknowledged when the next one is requested, after its output."""
    left = most
    while left is None or left > 0:
        wanted = _BATCH if left is None else min(left, _BATCH)
        found = consumer.poll(wanted, _WAIT_MS if follow else 0)
        for each in found:
            yield each.message
            consumer.ack(each)
        if not (found or follow):
            return
        left = None if left is None else left - len(found)
