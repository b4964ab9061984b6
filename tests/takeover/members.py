"""Members that handle a part of the messages of a store, a program of its own.

They print their state and wait for a line of input; then they close, unless killed before.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

import lakelog
from lakelog import Delivery, GroupConsumer, Store
from tests.replication.masterbroker import SEGMENT
from tests.support import forked
from tests.support.forked import Forked

GROUP: Final = "billing"
TOPIC: Final = "orders"
RETRIES: Final = f"%RETRY%{GROUP}"
DEAD_LETTERS: Final = f"%DLQ%{GROUP}"
FAILS: Final = 4
DIES: Final = 6
WAITS: Final = 8
_HELD: Final = 10
"""Every tenth message is handed out and stays so."""
_PART: Final = 30


def open_store(path: Path, **more: Any) -> Store:
    """Open a store whose files have the sizes of the broker's."""
    return lakelog.open(
        path,
        segment_size_bytes=SEGMENT,
        settings={
            "consume-queue": {"file_entries": 30_000},
            "hash-index": {"slots": 100_000, "entries": 400_000},
        },
        **more,
    )


@attrs.define
class Part:
    """:ivar acked: bodies of acknowledged messages; :ivar retried: of those in the retry topic."""

    acked: list[int] = attrs.field(factory=list)
    retried: list[int] = attrs.field(factory=list)

    def handle(self, consumer: GroupConsumer, each: Delivery) -> None:
        """Acknowledge, return or keep a message."""
        body = int(bytes(each.message.body))
        if body == DIES or (body == FAILS and each.attempt == 1):
            consumer.nack(each, 0)
        elif body == FAILS:
            self.retried.append(body)
        elif body == WAITS:
            consumer.nack(each)
        elif body % _HELD:
            consumer.ack(each)
            self.acked.append(body)


def main() -> None:
    part, handled = Part(), 0
    with open_store(Path(sys.argv[1])) as store, ExitStack() as joined:
        join = partial(store.subscribe, GROUP, TOPIC, start="earliest", max_attempts=2)
        one, two = (joined.enter_context(join(commit_interval_ms=0)) for _ in range(2))
        while handled < _PART or not (part.retried and store.queues(DEAD_LETTERS)):
            for consumer in (one, two):
                for each in consumer.poll(4 if handled < _PART else 1):
                    part.handle(consumer, each)
                    handled += 1
        print(json.dumps(attrs.asdict(part)), flush=True)  # noqa: T201  # what the test reads
        sys.stdin.readline()


@contextmanager
def running_members(path: Path) -> Iterator[tuple[Part, Forked]]:
    """Members in a process of their own that have handled their part."""
    with forked.start(__name__, [str(path)]) as process:
        assert process.stdout is not None
        try:
            yield Part(**json.loads(process.stdout.readline())), process
        finally:
            process.kill()
