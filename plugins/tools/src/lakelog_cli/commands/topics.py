"""``lakelog topics``: the topics that have queues."""

from __future__ import annotations

from typing import TypedDict

from lakelog_cli import options, output


class TopicRow(TypedDict):
    """A topic with the numbers of its queues and messages."""

    topic: str
    queues: int
    messages: int


@output.prints(TopicRow)
def topics(store: options.GivenStore, as_json: options.AsJson = False) -> None:
    """List topics, with the numbers of their queues and messages."""
    with store.read() as opened:
        rows = {name: _row(name) for name in opened.topics()}
        for queue in opened.queues():
            row = rows.setdefault(queue.topic, _row(queue.topic))
            row["queues"] += 1
            row["messages"] += queue.max_offset - queue.min_offset
    output.write_rows(list(rows.values()), as_json=as_json)


def _row(topic: str) -> TopicRow:
    return {"topic": topic, "queues": 0, "messages": 0}
