"""``lakelog groups``: committed offsets and lags of consumer groups, and changes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias, TypedDict

import attrs
import typer

from lakelog import Store, times
from lakelog.files.filesystem import RealFileSystem
from lakelog_cli.app import subcommands_of
from lakelog_cli.options import AsJson, GivenStore, Group, a_time, check_name
from lakelog_cli.output import prints, write_lines, write_result, write_rows
from lakelog_queues.configs import DEFAULT_RETRIES, remove_group, retry_limits, set_retry_limit
from lakelog_queues.consumers import consumer, offsettable
from lakelog_queues.groups.overview import InFlight, groups_with_state

Bounds: TypeAlias = Mapping[tuple[str, int], tuple[int, int]]
"""Minimum and maximum offset of every queue."""

Topics: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", help="Only this topic; may be repeated."),
]
app = subcommands_of("groups")


class GroupRow(TypedDict):
    """The progress of a consumer group in a queue.

    :ivar offset: queue offset of its next message
    :ivar min_offset: queue offset of the first message; null if the queue was removed
    :ivar max_offset: queue offset of the next message that is put
    :ivar lag: number of messages that the group has not consumed
    :ivar in_flight: number of messages that were handed out, and are not acknowledged
    :ivar oldest_ms: time since the first of them was handed out; null if no member has any
    """

    group: str
    topic: str
    queue_id: int
    offset: int | None
    min_offset: int | None
    max_offset: int | None
    lag: int | None
    in_flight: int
    oldest_ms: int | None


class GroupMemberRow(TypedDict):
    """A member of a group.

    :ivar state: active, idle (it has not polled for 60 s) or dead
    :ivar idle_ms: time since it last looked at the group
    """

    member: int
    pid: int
    state: str
    idle_ms: int


class CreatedGroupRow(TypedDict):
    """A consumer group in config/subscriptionGroup.json."""

    group: str
    max_retries: int


class ResetRow(TypedDict):
    """A committed queue offset."""

    group: str
    topic: str
    queue_id: int
    offset: int


class ForgottenRow(TypedDict):
    """A consumer group whose offsets were removed.

    :ivar topics: topics with removed offsets
    :ivar is_configured: whether its entry in config/subscriptionGroup.json was removed
    """

    group: str
    topics: list[str]
    is_configured: bool


@app.command(name="list")
@prints(GroupRow)
def list_groups(
    store: GivenStore,
    group: Annotated[
        str | None, typer.Argument(metavar="[GROUP]", help="Only this consumer group.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List consumer groups: the next offset of each queue, and the lag in messages.

    A removed queue has no lag. A group that has committed nothing yet is listed by its hand-outs.
    """
    rows = _rows(store, group)
    write_rows(rows, as_json=as_json)


def _rows(store: GivenStore, group: str | None) -> list[dict[str, Any]]:
    """The progress of one group, or of all, in each queue with a committed offset or a hand-out."""
    with store.read() as opened:
        known = opened.groups()
        files = RealFileSystem.of_store(opened.path)
        with_state = groups_with_state(files, opened.path)
        if group is not None:
            check_name("group", group, {*known, *with_state})
        bounds = {(q.topic, q.queue_id): (q.min_offset, q.max_offset) for q in opened.queues()}
        chosen = sorted({*known, *with_state}) if group is None else [group]
        held = {name: opened.group_status(name).in_flight for name in chosen}
    rows = []
    for name in chosen:
        places: dict[tuple[str, int], int | None] = {
            (each.topic, each.queue_id): None for each in held[name]
        }
        for topic, offsets in known.get(name, {}).items():
            places |= {(topic, queue_id): at for queue_id, at in offsets.items()}
        rows += [_row(name, queue, places[queue], bounds, held[name]) for queue in sorted(places)]
    return rows


@app.command()
@prints(GroupMemberRow, GroupRow, InFlight)
def show(store: GivenStore, group: Group, as_json: AsJson = False) -> None:
    """Show a group: its members, its progress, and the messages that members have.

    A message whose member hangs is handed out again at the end of its invisible time.
    """
    rows = _rows(store, group)
    with store.read() as opened:
        found = opened.group_status(group)
    members = [
        {"member": each.number, "pid": each.pid, "state": each.state, "idle_ms": each.idle_ms}
        for each in found.members
    ]
    for part in (members, rows, [attrs.asdict(each) for each in found.in_flight]):
        write_rows(part, as_json=as_json)


@app.command()
@prints(CreatedGroupRow)
def create(
    store: GivenStore,
    group: Group,
    *,
    max_retries: Annotated[
        int,
        typer.Option(
            min=0, help="Deliveries after the first, before a message becomes a dead letter."
        ),
    ] = DEFAULT_RETRIES,
    as_json: AsJson = False,
) -> None:
    """Create a group in RocketMQ's config/subscriptionGroup.json, or change its limit.

    Members need no such entry; its limit applies to members that join later.
    """
    offsettable.check_group(group)
    with store.change() as opened:
        set_retry_limit(RealFileSystem.of_store(opened.path), opened.path, group, max_retries)
    write_result({"group": group, "max_retries": max_retries}, as_json=as_json)


@app.command()
@prints(ResetRow)
def reset(  # each argument is an option of the command
    store: GivenStore,
    group: Group,
    *,
    to: Annotated[
        str,
        typer.Option(metavar="PLACE", help=f"earliest, latest, or a store time ({times.LOCAL})."),
    ],
    topics: Topics = None,
    as_json: AsJson = False,
) -> None:
    """Commit another offset in each queue; running members continue there within a second."""
    place = to if to in (consumer.EARLIEST, consumer.LATEST) else a_time(to)
    with store.change() as opened:
        opened.wait_dispatched()
        offsets = {each: _places(opened, each, place) for each in _topics(opened, group, topics)}
        opened.commit_offsets((group, topic, table) for topic, table in offsets.items())
    if as_json:
        write_lines(
            {"group": group, "topic": each, "queue_id": queue_id, "offset": offset}
            for each, table in offsets.items()
            for queue_id, offset in table.items()
        )


@app.command()
@prints(ForgottenRow)
def delete(store: GivenStore, group: Group, topics: Topics = None, as_json: AsJson = False) -> None:
    """Remove the offsets of a group; running members start again.

    Without --topic, its entry in config/subscriptionGroup.json is removed as well.
    """
    forgotten: list[str] = []
    with store.change() as opened:
        files = RealFileSystem.of_store(opened.path)
        is_configured = not topics and group in retry_limits(files, opened.path)
        if group in opened.groups() or not is_configured:
            forgotten = _topics(opened, group, topics)
            for topic in forgotten:
                opened.forget_offsets(group, topic)
        if is_configured:
            remove_group(files, opened.path, group)
    row = {"group": group, "topics": forgotten, "is_configured": is_configured}
    write_result(row, as_json=as_json)


def _topics(store: Store, group: str, topics: list[str] | None) -> list[str]:
    """The topics for which the group has offsets, or the given ones of them."""
    known = store.groups()
    check_name("group", group, known)
    for each in topics or ():
        check_name(f"topic of group {group}", each, known[group])
    return topics or sorted(known[group])


def _places(store: Store, topic: str, place: str | int) -> dict[int, int]:
    """The offset of a place in each queue of a topic."""
    found = {}
    for each in store.queues(topic):
        bounds = each.min_offset, each.max_offset
        if isinstance(place, int):
            at = consumer.within(store.offset_by_time(topic, each.queue_id, place), bounds)
        else:
            at = bounds[0] if place == consumer.EARLIEST else bounds[1]
        found[each.queue_id] = at
    return found


def _row(
    group: str,
    queue: tuple[str, int],
    offset: int | None,
    bounds: Bounds,
    held: Sequence[InFlight],
) -> dict[str, Any]:
    """One line; messages that were deleted unread do not count as lag."""
    minimum, maximum = bounds.get(queue, (None, None))
    lag = None
    if minimum is not None and maximum is not None:
        lag = max(0, maximum - max(offset or 0, minimum))
    mine = [each for each in held if (each.topic, each.queue_id) == queue]
    return {
        "group": group,
        "topic": queue[0],
        "queue_id": queue[1],
        "offset": offset,
        "min_offset": minimum,
        "max_offset": maximum,
        "lag": lag,
        "in_flight": len(mine),
        "oldest_ms": max((each.age_ms for each in mine if each.age_ms is not None), default=None),
    }
