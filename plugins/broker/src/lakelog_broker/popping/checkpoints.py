"""Open checkpoints of a RocketMQ broker whose directory is taken over.

RocketMQ moves a group's offset when it hands messages out, and puts a checkpoint ``ck`` into
``rmq_sys_REVIVE_LOG_<cluster>``; ``ack`` and ``bAck`` follow there. What is not acknowledged is
behind the group's offset, and would be lost: it is put into the group's retry topic, as RocketMQ
does when its time is over. Source: RocketMQ 5.3.3, ``PopReviveService``, ``PopCheckPoint``.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, Final, TypeAlias

import attrs

from lakelog import PutResult, Store, StoredMessage
from lakelog_broker.broker import Broker
from lakelog_broker.popping.handles import retry_topic
from lakelog_broker.popping.moving import append_moved
from lakelog_queues.groups.set_aside import RETRY_PREFIX, retry_of

REVIVE_TOPIC: Final = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
_LOG: Final = logging.getLogger("lakelog.broker")
_Key: TypeAlias = tuple[object, ...]


@attrs.define
class Checkpoint:
    """A hand-out of some messages of a queue.

    :ivar offsets: the queue offsets that are not acknowledged
    """

    group: str
    topic: str
    queue_id: int
    pop_time_ms: int
    offsets: dict[int, None]

    @classmethod
    def of(cls, content: Any) -> Checkpoint:
        """Parse the body of a ``ck``; raises ``KeyError``, ``TypeError`` and ``ValueError``."""
        start, acknowledged = int(content["so"]), int(content["bm"])
        steps = content.get("d") or range(int(content["n"]))
        offsets = {
            start + int(step): None for bit, step in enumerate(steps) if not acknowledged >> bit & 1
        }
        queue_id, pop_time_ms = int(content["q"]), int(content["pt"])
        return cls(content["c"], content["t"], queue_id, pop_time_ms, offsets)


async def honour_checkpoints(broker: Broker) -> None:
    """Put what was handed out and not acknowledged into the retry topics of its groups.

    A crash in between puts messages twice and loses none. Raises as ``Store.put``.
    """
    for config in list(broker.topics):
        if not config.topic.startswith(REVIVE_TOPIC):
            continue
        for queue_id in range(config.read_queues):
            start = broker.offsets.get(REVIVE_GROUP, config.topic, queue_id) or 0
            points, end = open_checkpoints(broker.store, config.topic, queue_id, start)
            for point in points:
                await _put_again(broker, point)
            if points:  # the offset must not pass messages that a crash can lose
                await asyncio.to_thread(broker.store.flush)
            if end > start:
                broker.offsets.set(REVIVE_GROUP, config.topic, queue_id, end)


def open_checkpoints(
    store: Store, topic: str, queue_id: int, start: int
) -> tuple[list[Checkpoint], int]:
    """The checkpoints with messages that are not acknowledged, and the end of the queue."""
    points: dict[_Key, Checkpoint] = {}
    while True:
        got = store.get(topic, queue_id, start, 1024)
        for message in got.messages:
            try:
                _read(points, message)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                _LOG.warning(
                    "%s, queue %d, offset %d is no checkpoint (%r) and is left out",
                    topic, queue_id, message.queue_offset, error,
                )  # fmt: skip
        if not got.messages and got.next_offset <= start:
            return [each for each in points.values() if each.offsets], start
        start = got.next_offset


def _read(points: dict[_Key, Checkpoint], message: StoredMessage) -> None:
    content, tag = json.loads(message.body), message.tags
    key = tuple(content.get(name) for name in ("t", "c", "q", "so", "pt", "bn"))
    if tag == "ck":
        points[key] = Checkpoint.of(content)
        return
    point = points.get(key)
    if point is not None:
        acknowledged = content["aol"] if tag == "bAck" else [content["ao"]]
        for offset in acknowledged:
            point.offsets.pop(int(offset), None)


async def _put_again(broker: Broker, point: Checkpoint) -> None:
    name = point.topic
    if not name.startswith(RETRY_PREFIX):
        name = retry_topic(point.group, point.topic)
    for offset in point.offsets:
        got = broker.store.get(point.topic, point.queue_id, offset, 1).messages
        if not got or got[0].queue_offset != offset:
            continue  # retention has removed it
        message = retry_of(got[0], point.group, got[0].reconsume_times + 1)
        message.topic = broker.topics.create(name, 1).topic
        put = append_moved(broker.appender, message)
        if not isinstance(put, PutResult):
            await put
