"""Requests that send messages: single messages, batches, and messages returned by consumers.

Replies to the requests of producers (``producer.request``).

A request is a message with the client id of its producer. The consumer's reply is stored, and
pushed to that client; without a connected client it is refused. Source: RocketMQ 5.3.3,
``ReplyMessageProcessor``.
"""

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

import attrs

from lakelog import Message, PutResult
from lakelog.results import PutStatus
from lakelog_broker.appending import refuse_system_topic
from lakelog_broker.broker import Broker
from lakelog_broker.codes import Refused, RequestCode, ResponseCode
from lakelog_broker.properties import client_properties, property_value, with_properties
from lakelog_broker.remoting.connection import Answer, Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.scheduled.recall import RecallHandle
from lakelog_broker.state.topics import WRITABLE
from lakelog_queues.groups.set_aside import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    dead_letter_of,
    retry_of,
)
from lakelog_rocketmq.config.topics import TopicConfig

_BATCHED: Final = struct.Struct(">iiiii")  # size, magic, checksum, flag, length of the body
_LENGTH: Final = struct.Struct(">h")
_PUT_CODES: Final = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
}
_PUT_OK: Final = PutStatus.PUT_OK
_NOT_RETURNED: Final = (b"DLQ_ORIGIN_TOPIC", b"DLQ_ORIGIN_MESSAGE_ID")
"""Properties that a dead letter lacks if it was returned by a consumer."""
_RECALL: Final = b"TIMER_DEL_UNIQKEY"
_WITH_LONG_NAMES: Final = frozenset(
    (int(RequestCode.SEND_MESSAGE), int(RequestCode.SEND_REPLY_MESSAGE))
)
_LONG_NAMES: Final = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "l": "maxReconsumeTimes",
    "m": "batch",
}


@attrs.define
class SendHeader:
    """The fields of a send request."""

    group: str
    topic: str
    default_topic: str
    default_queues: int
    queue_id: int
    sys_flag: int
    born_timestamp_ms: int
    flag: int
    properties: bytes
    reconsume_times: int
    max_reconsume_times: int | None
    is_batch: bool

    @classmethod
    def of(cls, request: RemotingCommand) -> SendHeader:
        """Parse the fields, with long names or single letters.

        Raises ``KeyError`` and ``ValueError``.
        """
        fields = request.fields
        if request.code in _WITH_LONG_NAMES:
            fields = {name: fields[long] for name, long in _LONG_NAMES.items() if long in fields}
        most = fields.get("l")
        return cls(
            fields.get("a", ""),
            fields["b"],
            fields.get("c", ""),
            int(fields.get("d", 0)),
            int(fields["e"]),
            int(fields.get("f", 0)),
            int(fields["g"]),
            int(fields.get("h", 0)),
            fields.get("i", "").encode(),
            int(fields.get("j") or 0),
            int(most) if most else None,
            fields.get("m") == "true",
        )


class SendRequests:
    """Puts messages of clients."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._region = broker.settings.region
        self._turn = itertools.count()

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
            RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back,
        }

    def send(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Awaitable[Answer]:
        """Put one message or a batch."""
        try:
            return self._send(connection, request)
        except Refused as error:
            return request.response(error.code, error.remark, **self._about_traces())

    def _about_traces(self) -> dict[str, Any]:
        return {"MSG_REGION": self._region, "TRACE_ON": "true"}

    def _send(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Awaitable[Answer]:
        header = SendHeader.of(request)
        topic = self._topic_of(header)
        queue_id = (
            header.queue_id if header.queue_id >= 0 else next(self._turn) % topic.write_queues
        )
        if queue_id >= max(topic.read_queues, topic.write_queues):
            remark = f"request queueId[{queue_id}] is illegal, {topic.topic} has fewer"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        if header.is_batch:
            return self._send_batch(connection, request, header, queue_id)
        message = Message(
            header.topic,
            request.body,
            properties=header.properties,
            queue_id=queue_id,
            flag=header.flag,
            sys_flag=header.sys_flag,
            born_timestamp_ms=header.born_timestamp_ms,
            born_host=connection.peer,
            reconsume_times=header.reconsume_times,
        )
        if header.topic.startswith(RETRY_PREFIX):
            self._limit_retries(message, header)
        message.properties = _checked(self._named(header), header.topic)
        put = self._broker.appender.append(message)
        handle = RecallHandle.of(message.properties, self._broker.settings.name)
        if isinstance(put, PutResult):
            return self.sent(request, queue_id, [put], handle)
        return self._sent_later(request, queue_id, put, handle)

    def _topic_of(self, header: SendHeader) -> TopicConfig:
        topics = self._broker.topics
        refuse_system_topic(header.topic)
        topic = topics.created_by_sending(header.topic, header.default_topic, header.default_queues)
        if not topic.permission & WRITABLE:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker.address}] sending message is forbidden "
                f"for the topic[{header.topic}]",
            )
        return topic

    def _limit_retries(self, message: Message, header: SendHeader) -> None:
        """Make a retry sent by an orderly consumer a dead letter after the last attempt."""
        most = header.max_reconsume_times
        if most is not None and header.reconsume_times > most:
            group = header.topic.removeprefix(RETRY_PREFIX)
            message.topic = self._broker.topics.of_group(DEAD_LETTER_PREFIX, group).topic
            message.queue_id = 0

    @staticmethod
    def _named(header: SendHeader) -> bytes:
        """The properties; a half message gets its producer group, which is asked for outcomes."""
        properties = header.properties
        if b"TRAN_MSG\x01true" in properties and property_value(properties, b"PGROUP") is None:
            return with_properties(properties, PGROUP=header.group)
        return properties

    def _send_batch(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: SendHeader,
        queue_id: int,
    ) -> RemotingCommand | Awaitable[Answer]:
        messages = [
            Message(
                header.topic,
                body,
                properties=_checked(properties, header.topic),
                queue_id=queue_id,
                flag=flag,
                sys_flag=header.sys_flag,
                born_timestamp_ms=header.born_timestamp_ms,
                born_host=connection.peer,
            )
            for body, properties, flag in split_batch(request.body)
        ]
        shared = _checked(header.properties, header.topic)
        puts = self._broker.appender.append_batch(messages, shared)
        if isinstance(puts, Sequence):
            return self.sent(request, queue_id, puts)
        return self._batch_later(request, queue_id, puts)

    async def _sent_later(
        self,
        request: RemotingCommand,
        queue_id: int,
        put: Awaitable[PutResult],
        handle: RecallHandle | None,
    ) -> Answer:
        return self.sent(request, queue_id, [await put], handle)

    async def _batch_later(
        self, request: RemotingCommand, queue_id: int, puts: Awaitable[Sequence[PutResult]]
    ) -> Answer:
        return self.sent(request, queue_id, await puts)

    def sent(
        self,
        request: RemotingCommand,
        queue_id: int,
        puts: Sequence[PutResult],
        handle: RecallHandle | None = None,
    ) -> RemotingCommand:
        """The response to a send.

        :param puts: the results of its puts, at least one
        """
        first = puts[0]
        response = request.response()
        if len(puts) > 1 or first.status is not _PUT_OK:
            response.code = _PUT_CODES[max(puts, key=lambda put: _PUT_CODES[put.status]).status]
            if response.code != ResponseCode.SUCCESS:
                response.remark = first.status.name
        response.fields = {
            "msgId": ",".join([put.message_id for put in puts]),
            "queueId": str(queue_id),
            "queueOffset": str(first.queue_offset),
            "MSG_REGION": self._region,
            "TRACE_ON": "true",
        }
        if handle is not None:
            response.fields["recallHandle"] = handle.encode()
        return response

    def send_back(
        self, _connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Awaitable[Answer]:
        """Put a returned message into ``%RETRY%group``, or after its last attempt ``%DLQ%group``.

        Raises :class:`~lakelog.errors.StoreError` if the message does not exist.
        """
        fields = request.fields
        group, level = fields["group"], int(fields["delayLevel"])
        most = fields.get("maxReconsumeTimes")
        limit = int(most) if most else self._broker.topics.retry_limit(group)
        stored = self._broker.store.look_up(int(fields["offset"]))
        times = stored.reconsume_times
        if times >= limit or level < 0:
            self._broker.topics.of_group(DEAD_LETTER_PREFIX, group)
            message = dead_letter_of(stored, group, times + 1)
            message.properties = with_properties(message.properties, _NOT_RETURNED, WAIT="false")  # type: ignore[arg-type]  # bytes
        else:
            self._broker.topics.of_group(RETRY_PREFIX, group)
            message = retry_of(stored, group, times + 1)
            delay = str(level or 3 + times)
            message.properties = with_properties(message.properties, DELAY=delay, WAIT="false")  # type: ignore[arg-type]  # bytes
        put = self._broker.appender.append_made(message)
        if isinstance(put, PutResult):
            return request.response(_PUT_CODES[put.status])
        return self._returned_later(request, put)

    async def _returned_later(self, request: RemotingCommand, put: Awaitable[PutResult]) -> Answer:
        return request.response(_PUT_CODES[(await put).status])


def _checked(properties: bytes, topic: str) -> bytes:
    """A client's properties without those of brokers.

    Raises :class:`Refused` for a recall of a message of another topic.
    """
    if b"TIMER_DEL_UNIQKEY\x01" in properties:
        recalled, plus, _ = (property_value(properties, _RECALL) or b"").partition(b"+")
        if plus and recalled != topic.encode():
            remark = f"a message of the topic {topic} must not recall one of another topic"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
    return client_properties(properties)


def split_batch(body: bytes) -> list[tuple[bytes, bytes, int]]:
    """Split a batch: body, property string and flag of each message; raises :class:`Refused`.

    A message is ``i32 size | i32 magic | i32 checksum | i32 flag | i32 length, body | i16 length,
    properties``, big-endian; the size is that of the whole message.
    """
    found, start = [], 0
    try:
        while start < len(body):
            size, _, _, flag, length = _BATCHED.unpack_from(body, start)
            first, end = start + _BATCHED.size, start + size
            (rest,) = _LENGTH.unpack_from(body, first + length)
            tail = first + length + _LENGTH.size
            if length < 0 or rest < 0 or tail + rest != end or end > len(body):
                raise ValueError
            found.append((body[first : first + length], body[tail:end], flag))
            start = end
    except (struct.error, ValueError):
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL, f"the batch is damaged at byte {start} of {len(body)}"
        ) from None
    if not found:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the batch has no message")
    return found


_REPLY_TO: Final = b"REPLY_TO_CLIENT"


class ReplyRequests:
    """Stores replies, and pushes them to the waiting clients."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._sending = broker, SendRequests(broker)

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    def reply(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Awaitable[Answer]:
        """Push a reply to its client, and store it; raises :class:`Refused`."""
        header = SendHeader.of(request)
        client_id = (property_value(header.properties, _REPLY_TO) or b"").decode()
        peer = self._peer_of(client_id)
        if peer is None:
            remark = f"process reply message fail, channel of <{client_id}> not found."
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        sent = self._sending.send(connection, request)
        now = str(time.time_ns() // 1_000_000)
        fields = {
            "bornHost": connection.peer,
            "storeHost": self._broker.address,
            "storeTimestamp": now,
            "producerGroup": header.group,
            "topic": header.topic,
            "defaultTopic": header.default_topic,
            "defaultTopicQueueNums": str(header.default_queues),
            "queueId": str(header.queue_id),
            "sysFlag": str(header.sys_flag),
            "bornTimestamp": str(header.born_timestamp_ms),
            "flag": str(header.flag),
            "properties": with_properties(header.properties, PUSH_REPLY_TIME=now).decode(),
            "reconsumeTimes": str(header.reconsume_times),
            "unitMode": "false",
        }
        peer.notify(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, request.body)
        return sent

    def _peer_of(self, client_id: str) -> Connection | None:
        for members in self._broker.members.producer_groups().values():
            member = members.get(client_id)
            if member is not None and isinstance(member.peer, Connection):
                return member.peer
        return None
