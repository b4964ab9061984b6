"""Open pop checkpoints in a directory that a RocketMQ broker served before.

RocketMQ moves a group's offset when it hands messages out, and puts a checkpoint ``ck`` into
``rmq_sys_REVIVE_LOG_<cluster>``; ``ack`` and ``bAck`` follow. All three are timer messages: until
the invisible time is over, they wait in ``rmq_sys_wheel_timer``.

A message that is not acknowledged is before the group's offset, and would be lost. So it is put
into the group's retry topic, as RocketMQ does after the invisible time. A checkpoint that still
waits is delivered to its topic later. An acknowledgement is put behind it, so that a RocketMQ
broker that serves the directory again puts no message twice. The offset of
``CID_RMQ_SYS_REVIVE_GROUP`` is the offset of the last settled record, not of the next one. Source:
RocketMQ 5.3.3, ``PopReviveService``, ``PopCheckPoint``, ``BatchAckMsg``.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import attrs

from lakelog import Message, StoredMessage
from lakelog.format.properties import TIMER_TOPIC, encode_properties
from lakelog_broker.appending import settled
from lakelog_broker.broker import Broker
from lakelog_queues.delays.delivering import REAL_QUEUE, REAL_TOPIC, one_of_many
from lakelog_queues.delays.timers import GROUP as TIMER_GROUP
from lakelog_queues.delays.timers import due_of, load_progress
from lakelog_queues.groups.set_aside import RETRY_PREFIX, retry_of
from lakelog_queues.units.properties import property_value
from lakelog_rocketmq.fastjson import encode

REVIVE_TOPIC: Final = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
_OF_REVIVE: Final = f"REAL_TOPIC\x01{REVIVE_TOPIC}".encode()
_READ: Final = 1024
_TAGS: Final = "ck || ack || bAck"
_BEHIND_MS: Final = 2_000
"""Delay of an acknowledgement behind its checkpoint, if that is due already."""
_LOG: Final = logging.getLogger("lakelog.broker")
_Key: TypeAlias = tuple[object, ...]
_OF_BOTH: Final = ("t", "c", "q", "so", "pt", "bn")
"""Fields of an acknowledgement that identify its checkpoint."""


@attrs.define
class Checkpoint:
    """A hand-out of some messages of a queue.

    :ivar pop_time_ms: time of the hand-out, in ms since 1970
    :ivar offsets: the queue offsets that are not acknowledged
    :ivar content: the body of the ``ck``
    :ivar place: topic, queue id and queue offset of the ``ck``
    :ivar goes_to: topic and queue id to which a timer will deliver the ``ck``; ``None`` if it is
        already there
    """

    group: str
    topic: str
    queue_id: int
    pop_time_ms: int
    offsets: dict[int, None]
    content: Mapping[str, Any]
    place: tuple[str, int, int]
    goes_to: tuple[str, int] | None = None

    @classmethod
    def of(cls, content: Any, place: tuple[str, int, int]) -> Checkpoint:
        """Parse the body of a ``ck``; raises ``KeyError``, ``TypeError`` and ``ValueError``."""
        start, acknowledged = int(content["so"]), int(content["bm"])
        steps = content.get("d") or range(int(content["n"]))
        offsets = {
            start + int(step): None for bit, step in enumerate(steps) if not acknowledged >> bit & 1
        }
        queue_id, pop_time_ms = int(content["q"]), int(content["pt"])
        return cls(content["c"], content["t"], queue_id, pop_time_ms, offsets, content, place)

    def acknowledgement(self, now_ms: int) -> Message | None:
        """A ``bAck`` for the open offsets, due after the ``ck``.

        :param now_ms: the present time, in ms since 1970
        :returns: ``None`` if no offset is open, or if the ``ck`` is already in its topic
        """
        if self.goes_to is None or not self.offsets:
            return None
        topic, queue_id = self.goes_to
        common = {name: self.content[name] for name in _OF_BOTH if name in self.content}
        due_ms = max(self.pop_time_ms + int(self.content["it"]), now_ms + _BEHIND_MS)
        properties = {"TAGS": "bAck", "TIMER_DELIVER_MS": str(due_ms)}
        return Message(
            topic,
            encode(dict(sorted({**common, "aol": [*self.offsets]}.items()))),
            properties=encode_properties(properties),
            queue_id=queue_id,
        )


async def revive_checkpoints(broker: Broker) -> None:
    """Put messages that were handed out and not acknowledged into the retry topics of their groups.

    A crash meanwhile puts some messages twice and loses none. Raises as ``Store.put`` and
    :meth:`Broker.save`.
    """
    reader = _Reader(broker)
    for topic in broker.store.topics():  # topics.json need not have the revive topic
        if topic.startswith(REVIVE_TOPIC):
            for queue in broker.store.queues(topic):
                reader.read_revived(topic, queue.queue_id)
    reader.read_waiting()
    if not reader.offsets:
        return
    for point in reader.points.values():
        is_settled = False
        with one_of_many(f"the retry of a pop of group {point.group!r} from {point.topic}"):
            await _put_again(broker, point)
            is_settled = True
        if not is_settled:  # the next start reads it again, and those behind it
            reader.keep(point.place)
    for (topic, queue_id), offset in reader.offsets.items():
        broker.offsets.set(REVIVE_GROUP, topic, queue_id, offset)
    await broker.save()  # a repeated start must not put them again


class _Reader:
    """Reads checkpoints and their acknowledgements.

    :ivar points: the open checkpoints, by the values of their ``_OF_BOTH`` fields
    :ivar offsets: the new offset of ``REVIVE_GROUP`` in each queue that had records
    :ivar _revived_ms: store time of the last honoured checkpoint, in ms since 1970; 0 without one
    """

    def __init__(self, broker: Broker) -> None:
        self.points: dict[_Key, Checkpoint] = {}
        self.offsets: dict[tuple[str, int], int] = {}
        self._store, self._committed = broker.store, broker.offsets
        # Read before the revive topics: what it counts as delivered is found there.
        self._delivered = load_progress(broker.files, broker.path)
        # Honoured checkpoints may be delivered to their topic later, and must not count again.
        end = self._committed.get(REVIVE_GROUP, TIMER_TOPIC, 0) or 0
        self._revived_ms = broker.time_of(TIMER_TOPIC, 0, end - 1)

    def read_revived(self, topic: str, queue_id: int) -> None:
        """Read a queue of the revive topic, from behind its last settled record."""
        settled = self._committed.get(REVIVE_GROUP, topic, queue_id)
        start = 0 if settled is None else settled + 1
        end = self._read(topic, queue_id, start)
        if end > start:
            self.offsets[topic, queue_id] = end - 1

    def keep(self, place: tuple[str, int, int]) -> None:
        """Let the next start read the record at a topic, queue id and queue offset again."""
        topic, queue_id, offset = place
        end = offset if topic == TIMER_TOPIC else offset - 1
        if end < 0:
            self.offsets.pop((topic, queue_id), None)
        elif (topic, queue_id) in self.offsets:
            self.offsets[topic, queue_id] = min(end, self.offsets[topic, queue_id])

    def read_waiting(self) -> None:
        """Read the records that still wait in the topic of timers."""
        start = max(
            self._committed.get(group, TIMER_TOPIC, 0) or 0 for group in (REVIVE_GROUP, TIMER_GROUP)
        )
        end = self._read(TIMER_TOPIC, 0, start)
        if self.points or self.offsets:
            self.offsets[TIMER_TOPIC, 0] = end

    def _read(self, topic: str, queue_id: int, start: int) -> int:
        """Read a queue from an offset to its end; return the end offset."""
        while True:
            got = self._store.get(topic, queue_id, start, _READ, tags=_TAGS)
            for message in got.messages:
                self._add(message)
            if not got.messages and got.next_offset <= start:
                return start
            start = got.next_offset

    def _add(self, message: StoredMessage) -> None:
        if message.topic == TIMER_TOPIC and _OF_REVIVE not in message.properties_bytes:
            return
        try:
            self._note(message)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            place = message.topic, message.queue_id, message.queue_offset
            text = "%s, queue %d, offset %d is no checkpoint (%r) and is left out"
            _LOG.warning(text, *place, error)

    def _note(self, message: StoredMessage) -> None:
        content, tag = json.loads(message.body), message.tags
        key = tuple(content.get(name) for name in _OF_BOTH)
        if tag == "ck":
            place = message.topic, message.queue_id, message.queue_offset
            found = Checkpoint.of(content, place)
            is_revived, text = False, message.properties_bytes
            if message.topic == TIMER_TOPIC:
                is_revived = self._delivered.is_delivered(message.queue_offset, *due_of(message))
                topic, queue_id = (property_value(text, each) for each in (REAL_TOPIC, REAL_QUEUE))
                found.goes_to = (topic or b"").decode(), int(queue_id or 0)
            if found.pop_time_ms > self._revived_ms and not is_revived:
                self.points[key] = found
            return
        point = self.points.get(key)
        if point is not None:
            for offset in content["aol"] if tag == "bAck" else [content["ao"]]:
                point.offsets.pop(int(offset), None)


async def _put_again(broker: Broker, point: Checkpoint) -> None:
    name = point.topic
    if not name.startswith(RETRY_PREFIX):
        name = broker.pop_retry_topic(point.group, point.topic)
    broker.make_topic_of(point.group, name)
    for offset in point.offsets:
        got = broker.store.get(point.topic, point.queue_id, offset, 1).messages
        if not got or got[0].queue_offset != offset:
            continue  # retention has removed it
        message = retry_of(got[0], point.group, got[0].reconsume_times + 1)
        message.topic = name
        await settled(broker.appender.append_moved(message))
    acknowledgement = point.acknowledgement(time.time_ns() // 1_000_000)
    if acknowledgement is not None:
        await settled(broker.appender.append_made(acknowledgement))
