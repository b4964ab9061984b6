"""``lakelog topics``: the topics that have queues."""

from __future__ import annotations

from typing import Any

from lakelog_cli.opening import open_for
from lakelog_cli.options import AsJson, Assignments, BrokerConf, SettingsFile, StorePath
from lakelog_cli.output import write_rows
from lakelog_cli.rows.queues import TopicRow
from lakelog_cli.schema import prints
from lakelog_queues.finding.results import QueueInfo


@prints(TopicRow)
def topics(
    store: StorePath,
    as_json: AsJson = False,
    broker_conf: BrokerConf = None,
    settings: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """List topics, with the numbers of their queues and messages."""
    with open_for("read", store, broker_conf, settings, assignments) as opened:
        rows = {name: _row(name) for name in opened.topics()}
        for queue in opened.queues():
            _count(rows.setdefault(queue.topic, _row(queue.topic)), queue)
    write_rows(list(rows.values()), as_json=as_json)


def _row(topic: str) -> dict[str, Any]:
    return {"topic": topic, "queues": 0, "messages": 0}


def _count(row: dict[str, Any], queue: QueueInfo) -> None:
    row["queues"] += 1
    row["messages"] += queue.max_offset - queue.min_offset
