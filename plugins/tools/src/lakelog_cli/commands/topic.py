"""``lakelog topic``: the queues and permission of topics, and their creation and removal."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypedDict

import typer

from lakelog import Store
from lakelog.files.filesystem import RealFileSystem
from lakelog_cli.app import subcommands_of
from lakelog_cli.options import AsJson, GivenStore, Topic, check_name
from lakelog_cli.output import prints, write_result, write_rows
from lakelog_queues.configs import remove_topic, set_topic, topics_of
from lakelog_queues.consumers.offsettable import check_topic

DEFAULT_QUEUES: Final = 8
"""RocketMQ's ``defaultTopicQueueNums``."""
_BITS: Final = {"r": 4, "w": 2}
"""RocketMQ's numbers of permissions, in ``topics.json``."""

app = subcommands_of("topic")


class TopicQueueRow(TypedDict):
    """A queue of a topic.

    :ivar permission: r, w, rw or none; null if the topic is not in config/topics.json
    :ivar min_offset: queue offset of its first message
    :ivar max_offset: queue offset of the next message
    """

    topic: str
    permission: str | None
    queue_id: int
    min_offset: int
    max_offset: int


class CreatedTopicRow(TypedDict):
    """A topic in config/topics.json."""

    topic: str
    queues: int
    permission: str


class DeletedTopicRow(TypedDict):
    """A topic that was removed."""

    topic: str


@app.command(name="list")
@prints(TopicQueueRow)
def list_topics(
    store: GivenStore,
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Only queues of this topic.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the queues of topics: permission, the first offset and the next offset.

    A topic without a permission is not in RocketMQ's config/topics.json: a broker that takes the
    store over does not have it until 'lakelog topic create'.
    """
    with store.read() as opened:
        configs = topics_of(RealFileSystem(), opened.path)
        bounds = {(q.topic, q.queue_id): (q.min_offset, q.max_offset) for q in opened.queues()}
    for name, each in configs.items():
        for queue_id in range(max(each.read_queues, each.write_queues)):
            bounds.setdefault((name, queue_id), (0, 0))
    if topic is not None:
        check_name("topic", topic, sorted({name for name, _ in bounds}))
    rows = [
        {
            "topic": name,
            "permission": _letters(configs[name].permission) if name in configs else None,
            "queue_id": queue_id,
            "min_offset": least,
            "max_offset": most,
        }
        for (name, queue_id), (least, most) in sorted(bounds.items())
        if topic in (None, name)
    ]
    write_rows(rows, as_json=as_json)


@app.command()
@prints(CreatedTopicRow)
def create(
    store: GivenStore,
    topic: Topic,
    *,
    queues: Annotated[
        int | None,
        typer.Option(min=1, help="Number of queues; default: as before, or 8 for a new topic."),
    ] = None,
    permission: Annotated[
        Literal["rw", "r", "w"], typer.Option(help="Permission of the clients of a broker.")
    ] = "rw",
    as_json: AsJson = False,
) -> None:
    """Create a topic in RocketMQ's config/topics.json, or change an existing one.

    lakelog accepts messages for any queue of any topic; a broker follows the file.
    """
    check_topic(topic)
    with store.change() as opened:
        opened.wait_dispatched()
        least = max((each.queue_id + 1 for each in opened.queues(topic)), default=0)
        number = queues or least or DEFAULT_QUEUES
        if number < least:
            raise typer.BadParameter(
                f"queue {least - 1} of topic {topic} has messages; give {least} or more",
                param_hint="--queues",
            )
        files = RealFileSystem.of_store(opened.path)
        set_topic(files, opened.path, topic, number, sum(_BITS[each] for each in permission))
    write_result({"topic": topic, "queues": number, "permission": permission}, as_json=as_json)


@app.command()
@prints(DeletedTopicRow)
def delete(store: GivenStore, topic: Topic, as_json: AsJson = False) -> None:
    """Remove a topic and its queues; its records stay in the log, without a queue."""
    with store.change() as opened:
        opened.wait_dispatched()
        _delete(opened, topic)
    write_result({"topic": topic}, as_json=as_json)


def _delete(store: Store, topic: str) -> None:
    """Remove the queues first: if that fails, the next attempt still finds the topic's entry."""
    configs, queued = topics_of(RealFileSystem(), store.path), store.topics()
    check_name("topic", topic, sorted({*configs, *queued}))
    if topic in queued:
        store.delete_topic(topic)
    if topic in configs:
        remove_topic(RealFileSystem.of_store(store.path), store.path, topic)


def _letters(permission: int) -> str:
    """The permission as ``r`` and ``w``, and ``none`` without both."""
    return "".join(each for each, bit in _BITS.items() if permission & bit) or "none"
