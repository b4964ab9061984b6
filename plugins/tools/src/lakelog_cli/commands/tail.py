"""``lakelog tail``: the last messages of a topic, and new ones."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Annotated, Final

import attrs
import typer

from lakelog import Store
from lakelog.arguments import queue_name
from lakelog.message import StoredMessage
from lakelog_cli import options, output

LOOK_SECONDS: Final = 0.1
"""Sleep of a follower of several queues when none of them has new messages."""
BATCH: Final = 32


@output.prints(output.MessageRow)
def tail(  # each argument is an option of the command
    store: options.GivenStore,
    topic: options.Topic,
    queues: Annotated[
        list[int] | None, typer.Argument(metavar="[QUEUE]...", help="Queue ids; all by default.")
    ] = None,
    *,
    last: Annotated[
        int, typer.Option("-n", min=0, help="Number of messages to print first, over all queues.")
    ] = 10,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Continue with new messages until Ctrl-C.")
    ] = False,
    tags: options.Tags = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the last messages of a topic in the log's order; with -f, also new ones.

    A topic that does not exist yet can be followed; without -f it is wrong usage.
    """
    with store.read() as opened:
        for queue in queues or ():
            queue_name(topic, queue)
        if not follow:
            _check(opened, topic, queues)
        reading = _Tail(opened, topic, queues, tags)
        output.write_messages(reading.last(last), as_json=as_json)
        if follow:
            output.write_messages(reading.coming(), as_json=as_json)


def _check(store: Store, topic: str, queues: Sequence[int] | None) -> None:
    options.check_name("topic", topic, store.topics())
    for queue in queues or ():
        options.check_queue(store, topic, queue)


@attrs.define
class _Tail:
    """Several queues of one topic, each with its next offset."""

    store: Store
    topic: str
    queues: Sequence[int] | None
    tags: str | None
    _next: dict[int, int] = attrs.field(factory=dict, init=False)

    def last(self, count: int) -> list[StoredMessage]:
        """The last ``count`` messages of all the queues, by their place in the log."""
        found: list[StoredMessage] = []
        for queue, minimum, maximum in self._bounds():
            self._next[queue] = maximum
            found += self._last_of(queue, minimum, maximum, count)
        found.sort(key=lambda message: message.physical_offset)
        return found[max(0, len(found) - count) :]

    def coming(self) -> Iterator[StoredMessage]:
        """Yield new messages, without end."""
        while True:
            found = False
            for queue, minimum, _ in self._bounds():
                for message in self._news(queue, minimum):
                    found = True
                    yield message
            if not found:
                time.sleep(LOOK_SECONDS)

    def _bounds(self) -> list[tuple[int, int, int]]:
        """Queue id, first and next offset of the queues that are there by now."""
        return [
            (each.queue_id, each.min_offset, each.max_offset)
            for each in self.store.queues(self.topic)
            if not self.queues or each.queue_id in self.queues
        ]

    def _last_of(self, queue: int, minimum: int, maximum: int, count: int) -> list[StoredMessage]:
        """Read backwards in growing steps until there are enough: tags may exclude many."""
        step, end = max(count, BATCH), maximum
        found: dict[int, StoredMessage] = {}  # by offset: if tags exclude messages, steps overlap
        while count > len(found) and end > minimum:
            start = max(minimum, end - step)
            found |= {each.physical_offset: each for each in self._between(queue, start, end)}
            end, step = start, step * 2
        return [found[place] for place in sorted(found)][max(0, len(found) - count) :]

    def _between(self, queue: int, start: int, end: int) -> Iterator[StoredMessage]:
        found = self.store.read(self.topic, queue, start, tags=self.tags)
        return takewhile(lambda message: message.queue_offset < end, found)

    def _news(self, queue: int, minimum: int) -> Iterator[StoredMessage]:
        """One batch of new messages of a queue; a new queue is read from its beginning."""
        at = max(self._next.setdefault(queue, minimum), minimum)
        got = self.store.get(self.topic, queue, at, BATCH, tags=self.tags)
        self._next[queue] = max(at, got.next_offset)
        yield from got.messages
