"""Requests that read messages of a queue; a request at its end may wait for new ones."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Final

import attrs

from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused, RequestCode, ResponseCode
from lakelog_broker.remoting.connection import Answer, Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.selection import EVERYTHING, Selection
from lakelog_broker.state.topics import READABLE
from lakelog_queues.finding.results import GetStatus, RecordsResult

COMMIT_FLAG: Final = 1
SUSPEND_FLAG: Final = 2
SUBSCRIPTION_FLAG: Final = 4
MAX_PULL_BYTES: Final = 4 << 20
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

    :ivar suspend_s: seconds to wait at the end of the queue; 0 is not at all
    :ivar commit_offset: a queue offset to commit first; ``None`` is none
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    max_messages: int
    suspend_s: float
    commit_offset: int | None
    expression: str | None
    expression_type: str

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
            fields.get("expressionType") or "TAG",
        )


class Pulling:
    """Reads whole records as stored."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Mapping[int, Handler]:
        """The requests that are served."""
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    def pull(
        self, _connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Awaitable[Answer]:
        """The records from a queue offset on."""
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
        selection = self._selection(header)
        found = self._get(header, selection)
        if header.suspend_s and _is_at_end(found, header):
            return self._wait(request, header, selection)
        return _pulled(request, header, found)

    def _selection(self, header: PullHeader) -> Selection:
        """The selection of the request, or that of the group's last heartbeat."""
        if header.expression is not None:
            return Selection.of(header.expression_type, header.expression)
        group = self._broker.members.group(header.group)
        known = group.subscriptions.get(header.topic) if group else None
        if known is None:
            return EVERYTHING
        return Selection.of(known.get("expressionType") or "TAG", known.get("subString") or "*")

    def _get(self, header: PullHeader, selection: Selection) -> RecordsResult:
        found = self._broker.store.get_records(
            header.topic,
            header.queue_id,
            header.offset,
            header.max_messages,
            max_bytes=MAX_PULL_BYTES,
            tags_codes=selection.tags_codes,
            verify=False,  # the client computes the checksums
        )
        return found if selection.filter is None else selection.of_records(found)

    async def _wait(
        self, request: RemotingCommand, header: PullHeader, selection: Selection
    ) -> Answer:
        found = self._get(header, selection)

        def is_found() -> bool:
            nonlocal found
            found = self._get(header, selection)
            return not _is_at_end(found, header)

        queues = [(header.topic, header.queue_id)]
        await self._broker.waits.until(queues, header.suspend_s, is_found)
        return _pulled(request, header, found)


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
