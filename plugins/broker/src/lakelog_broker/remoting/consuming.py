"""Requests of consumers: pulls and pops, offsets of groups, and messages by key or by offset.

A pull at the end of a queue may wait for the next message, a pop for the first one. Source:
RocketMQ 5.3.3, ``PopMessageProcessor``, ``AckMessageProcessor``,
``ChangeInvisibleTimeProcessor``, ``NotificationProcessor``, ``QueryAssignmentProcessor``.
"""

from __future__ import annotations

import base64
import binascii
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from lakelog.errors import StoreError
from lakelog.format.layout import AT_BORN_HOST, AT_SYS_FLAG, BORN_HOST_V6, STORE_HOST_V6
from lakelog.format.message_id import host_bytes
from lakelog_broker import codes, filtering, state
from lakelog_broker.broker import Broker
from lakelog_broker.codes import Forbidden, Invalid, NotFound, Refused, ResponseCode
from lakelog_broker.popping.handles import OWN_TOPIC, ReceiptHandle
from lakelog_broker.popping.service import Popped, PopRequest
from lakelog_broker.remoting.frame import RemotingCommand, queue_object
from lakelog_broker.remoting.server import Connection, Response
from lakelog_queues.finding.results import GetStatus, RecordsResult
from lakelog_queues.groups.set_aside import RETRY_PREFIX

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
_MAX_MESSAGES: Final = 32
_MAX_OFFSET: Final = (1 << 63) - 1
MAX_ACKNOWLEDGED: Final = 10_000
"""Most messages acknowledged by one request; RocketMQ's proxy sends those of a few hand-outs."""
_MAX_BITS_TEXT: Final = 10_000
_FROM_FIRST: Final = "0"
"""``ConsumeInitMode.MIN``."""
_I32: Final = struct.Struct(">i")
_I16: Final = struct.Struct(">h")


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
    if not topic.permission & state.READABLE:
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


def _selection(broker: Broker, header: PullHeader) -> filtering.MessageFilter:
    """The filter of the request, or of the group's last heartbeat; raises :class:`Refused`."""
    if header.expression is not None:
        return filtering.MessageFilter.of(header.expression, header.expression_type)
    known = broker.members.group(header.group).subscriptions.get(header.topic)
    if known is None:
        raise Refused("the consumer's group info not exist", ResponseCode.SUBSCRIPTION_NOT_EXIST)
    return filtering.MessageFilter.of(known.get("subString"), known.get("expressionType"))


def _get(broker: Broker, header: PullHeader, selected: filtering.MessageFilter) -> RecordsResult:
    queue = header.topic, header.queue_id
    found = selected.records(broker.store, *queue, header.offset, header.max_messages)
    broker.traffic.note_read(header.group, *queue, found.next_offset, len(found.records))
    return found


async def _wait(
    connection: Connection,
    request: RemotingCommand,
    header: PullHeader,
    selected: filtering.MessageFilter,
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
        raise NotFound("can not find message, maybe time range not correct")
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
    fields, queue, broker = request.fields, _queue(request), connection.broker
    found = broker.offsets.get(fields["consumerGroup"], *queue)
    if found is None:
        is_zero = broker.topics.find(queue[0]) and not broker.bounds(*queue)[0]
        if fields.get("setZeroIfNotFound") == "false" or not is_zero:
            raise NotFound("Not found, maybe this group consumer boot first")
        found = 0
    return request.response(offset=found)


def _queue(request: RemotingCommand) -> tuple[str, int]:
    """Topic and queue id of a request."""
    return request.fields["topic"], int(request.fields["queueId"])


def commit_offset(connection: Connection, request: RemotingCommand) -> None:
    """Change the next offset of a group."""
    fields, broker, queue = request.fields, connection.broker, _queue(request)
    topic, offset = broker.topics.require(queue[0]), int(fields["commitOffset"])
    is_there = queue[1] < topic.queue_count or broker.store.queue_bounds(*queue) is not None
    if queue[1] < 0 or not is_there:
        raise Invalid(f"queueId[{queue[1]}] is illegal, topic:[{queue[0]}] has fewer")
    if abs(offset) > _MAX_OFFSET:
        raise Invalid(f"the offset {str(offset)[:30]} has more than 64 bits")
    broker.offsets.set(fields["consumerGroup"], *queue, offset)


def first_offset(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The first offset of a queue."""
    return request.response(offset=connection.broker.bounds(*_queue(request))[0])


def end_offset(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The offset of the next message of a queue."""
    return request.response(offset=connection.broker.bounds(*_queue(request))[1])


def offset_by_time(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The queue offset for a store time."""
    fields, queue, store = request.fields, _queue(request), connection.broker.store
    if store.queue_bounds(*queue) is None:
        return request.response(offset=0)
    upper = fields.get("boundaryType", "").lower() == "upper"
    side: Literal["upper", "lower"] = "upper" if upper else "lower"
    time_ms = store_time_ms(fields["timestamp"])
    return request.response(offset=store.offset_by_time(*queue, time_ms, side))


def earliest_time(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The store time of the first message of a queue, in ms since 1970; -1 without one."""
    found = connection.broker.store.earliest_time(*_queue(request))
    return request.response(timestamp=-1 if found is None else found)


# --- of clients that pop ---


def _wanted(broker: Broker, request: RemotingCommand) -> PopRequest:
    fields = request.fields
    topic = broker.topics.require(fields["topic"])
    if not topic.permission & state.READABLE:
        raise Forbidden(f"the topic[{topic.topic}] peeking message is forbidden")
    queue_id = int(fields["queueId"])
    if queue_id >= topic.read_queues:
        raise Invalid(f"queueId[{queue_id}] is illegal, topic:[{topic.topic}] has fewer")
    most = int(fields.get("maxMsgNums", 1))
    if most > _MAX_MESSAGES:
        raise Invalid(f"the broker[{broker.settings.name}] pop message's num is greater than 32")
    return PopRequest(
        group=fields["consumerGroup"],
        topic=topic.topic,
        queues=range(topic.read_queues) if queue_id < 0 else [queue_id],
        max_messages=max(1, most),
        invisible_ms=int(fields.get("invisibleTime", 0)),
        selection=filtering.MessageFilter.of(fields.get("exp"), fields.get("expType")),
        is_ordered=fields.get("order") == "true",
        attempt_id=fields.get("attemptId", ""),
        from_first=fields.get("initMode") == _FROM_FIRST,
    )


async def pop(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Hand out messages; wait at most ``pollTime`` ms for the first one."""
    wanted = _wanted(connection.broker, request)
    found = await connection.server.popping().receive(
        wanted, int(request.fields["pollTime"]) / 1000
    )
    now_ms = time.time_ns() // 1_000_000
    places: dict[str, list[ReceiptHandle]] = {}
    for each in found:
        places.setdefault(f"{each.handle.flag} {each.handle.queue_id}", []).append(each.handle)
    starts = (f"{place} {all_[0].start_offset}" for place, all_ in places.items())
    offsets = (f"{place} {','.join(str(h.offset) for h in all_)}" for place, all_ in places.items())
    return request.response(
        ResponseCode.SUCCESS if found else ResponseCode.POLLING_TIMEOUT,
        "FOUND" if found else "NO_MESSAGE_IN_QUEUE",
        b"".join(map(popped_record, found)),
        popTime=found[0].handle.pop_time_ms if found else now_ms,
        invisibleTime=wanted.invisible_ms,
        reviveQid=0,
        restNum=0,
        startOffsetInfo=";".join(starts),
        msgOffsetInfo=";".join(offsets),
    )


def peek(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """The next messages of a group, without handing them out."""
    wanted = _wanted(connection.broker, request)
    records: list[bytes] = []
    for queue_id in wanted.queues:
        left = wanted.max_messages - len(records)
        if left > 0:
            place = wanted.topic, queue_id
            offset = connection.broker.offsets.get(wanted.group, *place) or 0
            records += connection.broker.store.get_records(*place, offset, left).records
    now_ms = time.time_ns() // 1_000_000
    code = ResponseCode.SUCCESS if records else ResponseCode.PULL_NOT_FOUND
    remark = "FOUND" if records else "NO_MESSAGE_IN_QUEUE"
    return request.response(
        code, remark, b"".join(records), popTime=now_ms, invisibleTime=0, reviveQid=0, restNum=0
    )


def acknowledge(connection: Connection, request: RemotingCommand) -> None:
    """Acknowledge a message."""
    if not connection.server.popping().acknowledge(*_hand_out(request.fields)):
        raise Refused("the hand-out is over or not known", ResponseCode.NO_MESSAGE)


def acknowledge_batch(connection: Connection, request: RemotingCommand) -> None:
    """Acknowledge messages of several hand-outs, of any groups."""
    name, hand_outs = connection.broker.settings.name, request.content().get("acks") or ()
    bits = [_bits(each.get("b") or "") for each in hand_outs]
    codes.check_limit(sum(map(len, bits)), MAX_ACKNOWLEDGED, "{} messages in one request")
    for each, steps in zip(hand_outs, bits, strict=True):
        start, popped_ms, invisible_ms, queue = (int(each[key]) for key in ("so", "pt", "it", "q"))
        flag = int(each.get("r") or 0)
        first = ReceiptHandle(start, popped_ms, invisible_ms, flag, name, queue, start)
        for step in steps:
            handle = attrs.evolve(first, offset=start + step)
            connection.server.popping().acknowledge(each["c"], each["t"], handle)


def change(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Change the time at which a message is handed out again."""
    group, topic, handle = _hand_out(request.fields)
    invisible_ms = max(0, int(request.fields["invisibleTime"]))
    changed = connection.server.popping().change(group, topic, handle, invisible_ms)
    if changed is None:
        raise Refused("the hand-out is over or not known", ResponseCode.NO_MESSAGE)
    return request.response(popTime=changed.pop_time_ms, invisibleTime=invisible_ms, reviveQid=0)


async def notify(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Whether there are messages; wait at most ``pollTime`` ms for the first one."""
    wanted = _wanted(connection.broker, request)
    found = await connection.broker.waits.until(
        [(wanted.topic, each) for each in wanted.queues],
        int(request.fields["pollTime"]) / 1000,
        lambda: connection.server.popping().is_available(wanted),
    )
    return request.response(hasMsg=str(found).lower(), pollingFull="false")


def set_mode(connection: Connection, request: RemotingCommand) -> None:
    """Set whether the members of a group pull or pop a topic."""
    content = request.content()
    topic, group = content["topic"], state.check_group(content["consumerGroup"])
    mode = str(content["mode"])
    if connection.broker.topics.find(topic) is None:
        state.check_topic(topic)
    if topic.startswith(RETRY_PREFIX):
        raise Forbidden("retry topic is not allowed to set mode")
    if mode not in {state.PULL, state.POP}:
        raise Invalid(f"the mode {mode!r} is no PULL or POP")
    connection.server.modes.set(topic, group, mode, int(content.get("popShareQueueNum") or 0))


def assignment(connection: Connection, request: RemotingCommand) -> dict[str, Any]:
    """The queues assigned to one member; queue -1, which means all, if the group pops."""
    broker, content = connection.broker, request.content()
    topic, group = content["topic"], content["consumerGroup"]
    config = broker.topics.require(topic)
    mode = connection.server.modes.of(topic, group)
    clients = sorted(broker.members.group(group).members)
    queues: Sequence[int] = range(config.read_queues)
    if mode == state.POP:
        queues = [-1]
    elif content.get("messageModel") != "BROADCASTING":
        queues = averaged(queues, clients, content["clientId"])
    name = broker.settings.name
    found = [{"messageQueue": queue_object(name, topic, each), "mode": mode} for each in queues]
    return {"messageQueueAssignments": found}


def averaged(queues: Sequence[int], clients: Sequence[str], client: str) -> Sequence[int]:
    """The queues of ``client``; as RocketMQ's ``AllocateMessageQueueAveragely``.

    >>> averaged(range(5), ["a", "b"], "a")
    range(0, 3)
    """
    if client not in clients:
        return []
    at, (each, more) = clients.index(client), divmod(len(queues), len(clients))
    start = at * each + min(at, more)
    return queues[start : start + each + (at < more)]


def popped_record(popped: Popped) -> bytes:
    """A copy of the stored record with its reconsume times and the property ``POP_CK`` set."""
    record, properties_size = popped.record, len(popped.message.properties_bytes)
    flags = _I32.unpack_from(record, AT_SYS_FLAG)[0]
    hosts = host_bytes(bool(flags & BORN_HOST_V6)) + host_bytes(bool(flags & STORE_HOST_V6))
    changed = bytearray(record)
    _I32.pack_into(changed, AT_BORN_HOST + hosts + 8, popped.attempt - 1)
    added = f"POP_CK\x01{popped.handle}\x02".encode()
    if properties_size and record[-1] != 2:
        added = b"\x02" + added
    length_at = len(record) - properties_size - _I16.size
    _I16.pack_into(changed, length_at, properties_size + len(added))
    changed += added
    _I32.pack_into(changed, 0, len(changed))
    return bytes(changed)


def _hand_out(fields: Mapping[str, str]) -> tuple[str, str, ReceiptHandle]:
    """Group, topic and handle of a request.

    The Java client sends the topic of the record, which may already be the retry topic.
    """
    handle, topic = ReceiptHandle.parse(fields["extraInfo"]), fields["topic"]
    if topic.startswith(RETRY_PREFIX):
        handle = attrs.evolve(handle, flag=OWN_TOPIC)
    return fields["consumerGroup"], topic, handle


def _bits(text: str) -> list[int]:
    """The indexes of the set bits of a ``BitSet``, which fastjson encodes as base64.

    Raises :class:`Refused`.
    """
    codes.check_limit(len(text), _MAX_BITS_TEXT, "bits of {} characters")
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Invalid("the bits are no base64") from None
    return [8 * at + bit for at, byte in enumerate(content) for bit in range(8) if byte >> bit & 1]
