"""``lakelog groups``: where consumers are, and what is left for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import typer

from lakelog_cli.notthere import check_name
from lakelog_cli.opening import open_for
from lakelog_cli.options import AsJson, Assignments, BrokerConf, SettingsFile, StorePath
from lakelog_cli.tables import write_rows

Offsets: TypeAlias = Mapping[str, Mapping[int, int]]
"""A group's next offsets, by topic and queue id."""
Bounds: TypeAlias = Mapping[tuple[str, int], tuple[int, int]]
"""Minimum and maximum offset of every queue."""


def groups(
    store: StorePath,
    group: Annotated[
        str | None, typer.Argument(metavar="[GROUP]", help="Only this consumer group.")
    ] = None,
    as_json: AsJson = False,
    broker_conf: BrokerConf = None,
    settings: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """List consumer groups: the next offset of each queue, and the lag in messages.

    A queue that is not there any more has no lag.
    """
    with open_for("read", store, broker_conf, settings, assignments) as opened:
        known = opened.groups()
        if group is not None:
            check_name("group", group, known)
        bounds = {(q.topic, q.queue_id): (q.min_offset, q.max_offset) for q in opened.queues()}
    chosen = sorted(known) if group is None else [group]
    rows = [row for name in chosen for row in _rows(name, known[name], bounds)]
    write_rows(rows, as_json=as_json)


def _rows(group: str, offsets: Offsets, bounds: Bounds) -> list[dict[str, Any]]:
    return [
        _row(group, (topic, queue_id), offsets[topic][queue_id], bounds)
        for topic in sorted(offsets)
        for queue_id in sorted(offsets[topic])
    ]


def _row(group: str, queue: tuple[str, int], offset: int, bounds: Bounds) -> dict[str, Any]:
    """One line; what was deleted before it was read does not count as lag."""
    minimum, maximum = bounds.get(queue, (None, None))
    lag = None
    if minimum is not None and maximum is not None:
        lag = max(0, maximum - max(offset, minimum))
    return {
        "group": group,
        "topic": queue[0],
        "queue_id": queue[1],
        "offset": offset,
        "min_offset": minimum,
        "max_offset": maximum,
        "lag": lag,
    }
