"""Requests that read: pulls, offsets of groups and queues, and messages by key or by offset.

A pull at the end of a queue may wait for the next message.
"""

from __future__ import annotations

from typing import Final, Literal

import attrs

from lakelog.errors import StoreError
from lakelog_broker.broker import Broker
from lakelog_broker.codes import Forbidden, Invalid, Refused, ResponseCode
from lakelog_broker.filtering import MessageFilter
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.remoting.server import Connection, Response
from lakelog_broker.state import READABLE
from lakelog_queues.finding.results import GetStatus, RecordsResult

COMMIT_FLAG: Final = 1
SUSPEND_FLAG: Final = 2
SUBSCRIPTION_FLAG: Final = 4
_MAX_PULLED: Final = 1024
_MAX_FOUND: Final = 64
"""RocketMQ's ``defaultQueryMaxNum``."""
_TIMES_MS: Final = range(10**11, 10**14)  # from 1973 to 5138
_CODES: Final = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


@attrs.frozen
class PullHeader:
    """The fields of a pull request.

    :ivar offset: the first queue offset to read
    :ivar suspend_s: seconds to wait at the end of the queue; 0 means no wait
    :ivar commit_offset: a queue offset to commit first, if any
    :ivar expression: the filter expression; ``None`` means that of the group's last heartbeat
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    max_messages: int
    suspend_s: float
    commit_offset: int | None
    expression: str | None
    expression_type: str | None

    @classmethod
    def of(cls, request: RemotingCommand) -> PullHeader:
        """Parse the fields; raises ``KeyError`` and ``ValueError``."""
        fields, flags = request.fields, int(request.fields["sysFlag"])
        commit = int(fields.get("commitOffset") or 0)
        return cls(
            fields["consumerGroup"],
            fields["topic"],
            int(fields["queueId"]),
            int(fields["queueOffset"]),
            max(1, min(int(fields["maxMsgNums"]), _MAX_PULLED)),
            int(fields.get("suspendTimeoutMillis") or 0) / 1000 if flags & SUSPEND_FLAG else 0,
            commit if flags & COMMIT_FLAG and commit > 0 else None,
            fields.get("subscription") if flags & SUBSCRIPTION_FLAG else None,
            fields.get("expressionType"),
        )


def pull(connection: Connection, request: RemotingCommand) -> Response:
    """The records from a queue offset on; raises :class:`Refused`."""
    header, broker = PullHeader.of(request), connection.broker
    topic = broker.topics.require(header.topic)
    if not topic.permission & READABLE:
        raise Forbidden(f"the topic[{header.topic}] pulling message is forbidden")
    if not 0 <= header.queue_id < topic.read_queues:
        raise Invalid(
            f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
            f"topicConfig.readQueueNums:[{topic.read_queues}]"
        )
    if header.commit_offset is not None:
        broker.offsets.set(header.group, header.topic, header.queue_id, header.commit_offset)
    selected = _selection(broker, header)
    found = _get(broker, header, selected)
    if header.suspend_s and _is_at_end(found, header):
        return _wait(connection, request, header, selected)
    return _pulled(request, header, found)


def _selection(broker: Broker, header: PullHeader) -> MessageFilter:
    """The filter of the request, or of the group's last heartbeat; raises :class:`Refused`."""
    if header.expression is not None:
        return MessageFilter.of(header.expression, header.expression_type)
    known = broker.members.group(header.group).subscriptions.get(header.topic)
    if known is None:
        raise Refused("the consumer's group info not exist", ResponseCode.SUBSCRIPTION_NOT_EXIST)
    return MessageFilter.of(known.get("subString"), known.get("expressionType"))


def _get(broker: Broker, header: PullHeader, selected: MessageFilter) -> RecordsResult:
    queue = header.topic, header.queue_id
    found = selected.records(broker.store, *queue, header.offset, header.max_messages)
    broker.traffic.note_read(header.group, *queue, found.next_offset, len(found.records))
    return found


async def _wait(
    connection: Connection,
    request: RemotingCommand,
    header: PullHeader,
    selected: MessageFilter,
) -> RemotingCommand:
    queue, broker = (header.topic, header.queue_id), connection.broker

    def has_grown() -> bool:
        bounds = broker.store.queue_bounds(*queue)
        return bounds is not None and bounds[1] > header.offset

    await broker.waits.until([queue], header.suspend_s, has_grown)
    await connection.writable()  # records are read only when they can be written
    return _pulled(request, header, _get(broker, header, selected))


def _is_at_end(found: RecordsResult, header: PullHeader) -> bool:
    if found.status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE):
        return header.offset == 0
    return found.status == GetStatus.OFFSET_OVERFLOW_ONE


def _pulled(request: RemotingCommand, header: PullHeader, found: RecordsResult) -> RemotingCommand:
    code = _CODES.get(found.status)
    if code is None:  # no queue, or an empty one
        code = ResponseCode.PULL_OFFSET_MOVED if header.offset else ResponseCode.PULL_NOT_FOUND
    return request.response(
        code,
        found.status.name,
        b"".join(found.records),
        suggestWhichBrokerId=0,
        nextBeginOffset=found.next_offset,
        minOffset=found.min_offset,
        maxOffset=found.max_offset,
    )


def store_time_ms(text: str) -> int:
    """Parse a client's time in ms since 1970, and limit it to the range of the store.

    A time before 1973 becomes 0. Raises ``ValueError``.
    """
    time_ms = int(text)
    return 0 if time_ms < _TIMES_MS.start else min(time_ms, _TIMES_MS[-1])


def messages_of_key(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The messages with a key, newest first."""
    fields = request.fields
    places = connection.broker.store.query_offsets(
        fields["topic"],
        fields["key"],
        since_ms=store_time_ms(fields["beginTimestamp"]),
        until_ms=store_time_ms(fields["endTimestamp"]),
        max_count=max(1, min(int(fields["maxNum"]), _MAX_FOUND)),
    )
    if not places:
        raise Refused(
            "can not find message, maybe time range not correct", ResponseCode.QUERY_NOT_FOUND
        )
    body = b"".join([connection.broker.store.look_up_record(place) for place in places])
    return request.response(
        body=body, indexLastUpdateTimestamp=0, indexLastUpdatePhyoffset=places[0]
    )


def message_at(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The message at a physical offset."""
    offset = int(request.fields["offset"])
    try:
        return request.response(body=connection.broker.store.look_up_record(offset))
    except StoreError:
        raise Refused(f"can not find message by the offset, {offset}") from None


def group_offset(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The next offset of a group; 0 for a new group if the queue still begins at 0."""
    fields = request.fields
    topic, queue_id = fields["topic"], int(fields["queueId"])
    found = connection.broker.offsets.get(fields["consumerGroup"], topic, queue_id)
    if found is None:
        is_zero = (
            connection.broker.topics.find(topic)
            and not connection.broker.bounds(topic, queue_id)[0]
        )
        if fields.get("setZeroIfNotFound") == "false" or not is_zero:
            raise Refused(
                "Not found, maybe this group consumer boot first", ResponseCode.QUERY_NOT_FOUND
            )
        found = 0
    return request.response(offset=found)


def commit_offset(connection: Connection, request: RemotingCommand) -> None:
    """Change the next offset of a group."""
    fields = request.fields
    group, topic = fields["consumerGroup"], fields["topic"]
    connection.broker.topics.require(topic)
    connection.broker.offsets.set(group, topic, int(fields["queueId"]), int(fields["commitOffset"]))


def first_offset(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The first offset of a queue."""
    topic, queue_id = request.fields["topic"], int(request.fields["queueId"])
    return request.response(offset=connection.broker.bounds(topic, queue_id)[0])


def end_offset(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The offset of the next message of a queue."""
    topic, queue_id = request.fields["topic"], int(request.fields["queueId"])
    return request.response(offset=connection.broker.bounds(topic, queue_id)[1])


def offset_by_time(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The queue offset for a store time."""
    fields = request.fields
    topic, queue_id = fields["topic"], int(fields["queueId"])
    if connection.broker.store.queue_bounds(topic, queue_id) is None:
        return request.response(offset=0)
    upper = fields.get("boundaryType", "").lower() == "upper"
    side: Literal["upper", "lower"] = "upper" if upper else "lower"
    time_ms = store_time_ms(fields["timestamp"])
    return request.response(
        offset=connection.broker.store.offset_by_time(topic, queue_id, time_ms, side)
    )


def earliest_time(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The store time of the first message of a queue, in ms since 1970; -1 without one."""
    topic, queue_id = request.fields["topic"], int(request.fields["queueId"])
    found = connection.broker.store.earliest_time(topic, queue_id)
    return request.response(timestamp=-1 if found is None else found)
