"""Requests about the offsets of groups and queues, and about offsets by time.

Requests that find messages by key or by physical offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from lakelog.errors import StoreError
from lakelog_broker.broker import Broker
from lakelog_broker.codes import RequestCode, ResponseCode
from lakelog_broker.remoting.connection import Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand

_MAX_MESSAGES: Final = 64
"""RocketMQ's ``defaultQueryMaxNum``."""
_TIMES_MS: Final = range(10**11, 10**14)  # from 1973 to 5138


def store_time_ms(text: str) -> int:
    """Parse a client's time in ms since 1970, and limit it to the range of the store.

    A time before 1973 becomes 0. Raises ``ValueError``.
    """
    time_ms = int(text)
    return 0 if time_ms < _TIMES_MS.start else min(time_ms, _TIMES_MS[-1])


class LookupRequests:
    """Finds messages, and returns their stored records."""

    def __init__(self, broker: Broker) -> None:
        self._store = broker.store

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {RequestCode.QUERY_MESSAGE: self.query, RequestCode.VIEW_MESSAGE_BY_ID: self.view}

    def query(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The messages with a key, newest first."""
        fields = request.fields
        places = self._store.query_offsets(
            fields["topic"],
            fields["key"],
            since_ms=store_time_ms(fields["beginTimestamp"]),
            until_ms=store_time_ms(fields["endTimestamp"]),
            max_count=max(1, min(int(fields["maxNum"]), _MAX_MESSAGES)),
        )
        if not places:
            remark = "can not find message, maybe time range not correct"
            return request.response(ResponseCode.QUERY_NOT_FOUND, remark)
        body = b"".join([self._store.look_up_record(place) for place in places])
        return request.response(
            body=body, indexLastUpdateTimestamp=0, indexLastUpdatePhyoffset=places[0]
        )

    def view(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The message at a physical offset."""
        offset = int(request.fields["offset"])
        try:
            return request.response(body=self._store.look_up_record(offset))
        except StoreError:
            remark = f"can not find message by the offset, {offset}"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)


class OffsetRequests:
    """Reads and commits queue offsets."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._store = broker, broker.store

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.GET_MAX_OFFSET: self.maximum,
            RequestCode.GET_MIN_OFFSET: self.minimum,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.by_time,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_time,
        }

    def query(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The next offset of a group; 0 for a new group if the queue still begins at 0."""
        fields = request.fields
        topic, queue_id = fields["topic"], int(fields["queueId"])
        found = self._broker.offsets.get(fields["consumerGroup"], topic, queue_id)
        if found is None:
            is_zero = self._broker.topics.find(topic) and not self._bounds(topic, queue_id)[0]
            if fields.get("setZeroIfNotFound") == "false" or not is_zero:
                remark = "Not found, maybe this group consumer boot first"
                return request.response(ResponseCode.QUERY_NOT_FOUND, remark)
            found = 0
        return request.response(offset=found)

    def update(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Change the next offset of a group."""
        fields = request.fields
        group, topic = fields["consumerGroup"], fields["topic"]
        self._broker.topics.require(topic)
        offset = int(fields["commitOffset"])
        self._broker.offsets.set(group, topic, int(fields["queueId"]), offset)
        return request.response()

    def minimum(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The first offset of a queue."""
        topic, queue_id = request.fields["topic"], int(request.fields["queueId"])
        return request.response(offset=self._bounds(topic, queue_id)[0])

    def maximum(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The offset of the next message of a queue."""
        topic, queue_id = request.fields["topic"], int(request.fields["queueId"])
        return request.response(offset=self._bounds(topic, queue_id)[1])

    def by_time(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The queue offset for a store time."""
        fields = request.fields
        topic, queue_id = fields["topic"], int(fields["queueId"])
        if self._store.queue_bounds(topic, queue_id) is None:
            return request.response(offset=0)
        upper = fields.get("boundaryType", "").lower() == "upper"
        side: Literal["upper", "lower"] = "upper" if upper else "lower"
        time_ms = store_time_ms(fields["timestamp"])
        return request.response(offset=self._store.offset_by_time(topic, queue_id, time_ms, side))

    def earliest_time(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The store time of the first message of a queue, in ms since 1970; -1 without one."""
        topic, queue_id = request.fields["topic"], int(request.fields["queueId"])
        found = self._store.earliest_time(topic, queue_id)
        return request.response(timestamp=-1 if found is None else found)

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self._store.queue_bounds(topic, queue_id) or (0, 0)
