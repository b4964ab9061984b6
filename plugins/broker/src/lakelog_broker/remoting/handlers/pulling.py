"""Requests that read messages of a queue; a request at the end of the queue may wait."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Final

import attrs

from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused, RequestCode, ResponseCode
from lakelog_broker.filtering import MessageFilter
from lakelog_broker.remoting.connection import Answer, Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.state.topics import READABLE
from lakelog_queues.finding.results import GetStatus, RecordsResult

COMMIT_FLAG: Final = 1
SUSPEND_FLAG: Final = 2
SUBSCRIPTION_FLAG: Final = 4
_MAX_MESSAGES: Final = 1024
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
            max(1, min(int(fields["maxMsgNums"]), _MAX_MESSAGES)),
            int(fields.get("suspendTimeoutMillis") or 0) / 1000 if flags & SUSPEND_FLAG else 0,
            commit if flags & COMMIT_FLAG and commit > 0 else None,
            fields.get("subscription") if flags & SUBSCRIPTION_FLAG else None,
            fields.get("expressionType"),
        )


class PullRequests:
    """Reads stored records from queues."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    def pull(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Awaitable[Answer]:
        """The records from a queue offset on; raises :class:`Refused`."""
        header = PullHeader.of(request)
        topic = self._broker.topics.require(header.topic)
        if not topic.permission & READABLE:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the topic[{header.topic}] pulling message is forbidden",
            )
        if not 0 <= header.queue_id < topic.read_queues:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queues}]",
            )
        if header.commit_offset is not None:
            self._broker.offsets.set(
                header.group, header.topic, header.queue_id, header.commit_offset
            )
        selected = self._selection(header)
        found = self._get(header, selected)
        if header.suspend_s and _is_at_end(found, header):
            return self._wait(connection, request, header, selected)
        return _pulled(request, header, found)

    def _selection(self, header: PullHeader) -> MessageFilter:
        """The filter of the request, or of the group's last heartbeat; raises :class:`Refused`."""
        if header.expression is not None:
            return MessageFilter.of(header.expression, header.expression_type)
        group = self._broker.members.group(header.group)
        known = group.subscriptions.get(header.topic) if group else None
        if known is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist"
            )
        return MessageFilter.of(known.get("subString"), known.get("expressionType"))

    def _get(self, header: PullHeader, selected: MessageFilter) -> RecordsResult:
        queue = header.topic, header.queue_id
        found = selected.records(self._broker.store, *queue, header.offset, header.max_messages)
        count = len(found.records)
        self._broker.traffic.note_read(header.group, *queue, found.next_offset, count)
        return found

    async def _wait(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: PullHeader,
        selected: MessageFilter,
    ) -> Answer:
        queue = header.topic, header.queue_id

        def has_grown() -> bool:
            bounds = self._broker.store.queue_bounds(*queue)
            return bounds is not None and bounds[1] > header.offset

        await self._broker.waits.until([queue], header.suspend_s, has_grown)
        await connection.writable()  # records are read only when they can be written
        return _pulled(request, header, self._get(header, selected))


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
