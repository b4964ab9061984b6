"""``lakelog queues``: every queue and its offsets."""

from __future__ import annotations

from typing import Annotated

import attrs
import typer

from lakelog_cli.options import AsJson, GivenStore, check_name
from lakelog_cli.output import prints, write_rows
from lakelog_queues.finding.results import QueueInfo


@prints(QueueInfo)
def queues(
    store: GivenStore,
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Only queues of this topic.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List queues: the first offset, the next offset, and the end of the last record."""
    with store.read() as opened:
        if topic is not None:
            check_name("topic", topic, opened.topics())
        write_rows([attrs.asdict(each) for each in opened.queues(topic)], as_json=as_json)
