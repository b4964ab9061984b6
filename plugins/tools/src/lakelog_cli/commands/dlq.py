"""``lakelog dlq``: messages that a consumer group could not handle."""

from __future__ import annotations

from typing import TypedDict

from lakelog import NotDurable, Store
from lakelog_cli.app import LakelogGroup, subcommands_of
from lakelog_cli.options import AsJson, GivenStore, Group
from lakelog_cli.output import MessageRow, print_line, prints, write_messages, write_result
from lakelog_queues.consumers.offsettable import check_group
from lakelog_queues.finding.results import QueueInfo
from lakelog_queues.groups.set_aside import DEAD_LETTER_PREFIX, resent

app = subcommands_of("dlq", LakelogGroup)


@app.command(name="list")
@prints(MessageRow)
def list_letters(store: GivenStore, group: Group, as_json: AsJson = False) -> None:
    """Print the dead letters of a group, including resent ones."""
    with store.read() as opened:
        for each in _queues(opened, group):
            write_messages(opened.read(each.topic, each.queue_id), as_json=as_json)


class ResentRow(TypedDict):
    """The number of dead letters that were put again."""

    group: str
    messages: int


@app.command()
@prints(ResentRow)
def resend(store: GivenStore, group: Group, as_json: AsJson = False) -> None:
    """Put each dead letter that was not resent yet into its topic again; print their number.

    All groups of the topic receive it. The group's offset in its dead letters is the progress.
    """
    count = 0
    with store.change() as opened:
        opened.wait_dispatched()
        _queues(opened, group)
        topic = f"{DEAD_LETTER_PREFIX}{group}"
        with opened.consumer(group, topic, start="earliest") as consumer:
            while found := consumer.poll():
                try:
                    opened.put_batch([resent(each) for each in found])
                except NotDurable:  # they are in the log: a second run must not put them again
                    opened.flush()
                consumer.commit()
                count += len(found)
    write_result({"group": group, "messages": count}, str(count), as_json=as_json)


def _queues(store: Store, group: str) -> list[QueueInfo]:
    """The queues of the group's dead letters; if there are none, a note goes to stderr."""
    found = store.queues(f"{DEAD_LETTER_PREFIX}{check_group(group)}")
    if not found:
        print_line(f"note: group {group} has no dead letters", err=True)
    return found
