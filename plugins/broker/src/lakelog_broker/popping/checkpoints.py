"""Open checkpoints of a RocketMQ broker whose directory is taken over.

RocketMQ moves a group's offset when it hands messages out, and puts a checkpoint ``ck`` into
``rmq_sys_REVIVE_LOG_<cluster>``; ``ack`` and ``bAck`` follow. They are timer messages: until the
time of the hand-out is over, they are in ``rmq_sys_wheel_timer``. What is not acknowledged is
behind the group's offset, and would be lost: it is put into the group's retry topic, as RocketMQ
does in the end. Source: RocketMQ 5.3.3, ``PopReviveService``, ``PopCheckPoint``.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final, TypeAlias

import attrs

from lakelog import PutResult, StoredMessage
from lakelog_broker.appending import TIMER_TOPIC
from lakelog_broker.broker import Broker
from lakelog_broker.popping.handles import retry_topic
from lakelog_queues.groups.set_aside import RETRY_PREFIX, retry_of

REVIVE_TOPIC: Final = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
_OF_REVIVE: Final = f"REAL_TOPIC\x01{REVIVE_TOPIC}".encode()
_READ: Final = 1024
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
    topics = [each for each in broker.topics if each.topic.startswith(REVIVE_TOPIC)]
    if not topics:
        return
    reader = _Reader(broker)
    for each in topics:
        for queue_id in range(each.read_queues):
            reader.read(each.topic, queue_id)
    reader.read(TIMER_TOPIC, 0)
    for point in reader.points.values():
        await _put_again(broker, point)
    for (topic, queue_id), end in reader.ends.items():
        broker.offsets.set(REVIVE_GROUP, topic, queue_id, end)
    await broker.save()  # a start that fails from here on must not put them again


class _Reader:
    """Reads checkpoints and their acknowledgements.

    :ivar ends: the ends of the queues that were read
    """

    def __init__(self, broker: Broker) -> None:
        self.points: dict[_Key, Checkpoint] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self._store, self._offsets = broker.store, broker.offsets
        self._honoured_ms = self._last_honoured_ms()

    def _last_honoured_ms(self) -> int:
        """The time up to which checkpoints were honoured; they come to their topic later on."""
        end = self._offsets.get(REVIVE_GROUP, TIMER_TOPIC, 0) or 0
        last = self._store.get(TIMER_TOPIC, 0, end - 1, 1).messages if end > 0 else []
        return last[0].store_timestamp_ms if last else -1

    def read(self, topic: str, queue_id: int) -> None:
        """Read a queue from its committed offset to its end."""
        start = self._offsets.get(REVIVE_GROUP, topic, queue_id) or 0
        while True:
            got = self._store.get(topic, queue_id, start, _READ)
            for message in got.messages:
                self._add(message)
            if not got.messages and got.next_offset <= start:
                self.ends[topic, queue_id] = start
                return
            start = got.next_offset

    def _add(self, message: StoredMessage) -> None:
        properties = message.properties_bytes
        if message.topic == TIMER_TOPIC and _OF_REVIVE not in properties:
            return
        try:
            _read(self.points, message, self._honoured_ms)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            _LOG.warning(
                "%s, queue %d, offset %d is no checkpoint (%r) and is left out",
                message.topic,
                message.queue_id,
                message.queue_offset,
                error,
            )


def _read(points: dict[_Key, Checkpoint], message: StoredMessage, honoured_ms: int) -> None:
    content, tag = json.loads(message.body), message.tags
    key = tuple(content.get(name) for name in ("t", "c", "q", "so", "pt", "bn"))
    if tag == "ck":
        found = Checkpoint.of(content)
        if found.pop_time_ms > honoured_ms:
            points[key] = found
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
        put = broker.appender.append_moved(message)
        if not isinstance(put, PutResult):
            await put
