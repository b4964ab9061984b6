"""``lakelog queues``: every queue and its offsets."""

from __future__ import annotations

from typing import Annotated

import attrs
import typer

from lakelog_cli import options, output
from lakelog_queues.finding.results import QueueInfo


@output.prints(QueueInfo)
def queues(
    store: options.GivenStore,
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Only queues of this topic.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """List queues: the first offset, the next offset, and the end of the last record."""
    with store.read() as opened:
        if topic is not None:
            options.check_name("topic", topic, opened.topics())
        output.write_rows([attrs.asdict(each) for each in opened.queues(topic)], as_json=as_json)
