"""Requests of producers: sends, replies, ends of transactions and recalls; and returned messages.

A request of a producer (``producer.request``) is a message with the client id of its producer. The
consumer's reply is stored, and pushed to that client; without a connected client it is refused.
Source: RocketMQ 5.3.3, ``SendMessageProcessor``, ``ReplyMessageProcessor``.

:class:`PlainSends` is a fast path for single messages as RocketMQ's Java client encodes them. Most
of the cost of a send is the parsing of its header. The headers of the Java client have JSON of one
form, and most differ only in queue, time, properties and number. One regular expression reads
these; all other fields together are the key of the cached fields and topic. Any other send is left
to :func:`send`, before it has any effect: errors, new topics, batches, retries, delayed messages,
puts that wait, and brokers with users.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Sequence
from typing import Any, Final

import attrs

from lakelog import Message, PutResult
from lakelog.format.message_id import format_message_id
from lakelog.results import PutStatus
from lakelog_broker import appending, state
from lakelog_broker.broker import Broker
from lakelog_broker.codes import Forbidden, Invalid, NoTopic, Refused, ResponseCode
from lakelog_broker.properties import client_properties, with_priority
from lakelog_broker.remoting.frame import RemotingCommand, answer_template, encode_frame, framed
from lakelog_broker.remoting.requests import RequestCode
from lakelog_broker.remoting.server import Connection, Response, failed
from lakelog_broker.scheduled.recalls import RecallHandle
from lakelog_queues.groups import set_aside
from lakelog_queues.units.properties import property_value, with_properties
from lakelog_rocketmq.config import TopicConfig
from lakelog_rocketmq.fastjson import encode

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
_WITH_LONG_NAMES: Final = (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
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
_OUTCOMES: Final = {8: True, 12: False, 0: None}
"""Whether a transaction is committed, by ``commitOrRollback``; ``None`` if it is unknown."""


_TEXT: Final = rb'"[ !#-\[\]-~]*"'
_READ: Final = re.compile(
    rb'\{"code":310,"extFields":\{("a":TEXT,"b":(?!"%)TEXT,"c":TEXT,"d":"\d+"),"e":"(\d{1,9})",'
    rb'("f":"\d{1,9}"),"g":"(\d{1,18})",("h":"-?\d{1,9}"),"i":"([ !#-~]*)",'
    rb'("j":"\d{1,9}"(?:,"k":"(?:true|false)")?(?:,"l":"\d+")?(?:,"m":"false")?(?:,"n":TEXT)?)\},'
    rb'"flag":([02]),"language":"JAVA","opaque":(\d{1,9}),"serializeTypeCurrentRPC":"JSON",'
    rb'"version":\d+\}'.replace(b"TEXT", _TEXT)
).fullmatch
_FIELD: Final = re.compile(r'"(\w)":"([^"]*)"')
_MOST_KINDS: Final = 1024
_CODE: Final = RequestCode.SEND_MESSAGE_V2

_OFFSET_DIGITS: Final = 16
"""Length of the physical offset, the last part of a message id, in hexadecimal digits."""


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

    def message(
        self, body: bytes, properties: bytes, queue_id: int, flag: int, born_host: str
    ) -> Message:
        """A message of the request."""
        return Message(
            self.topic,
            body,
            properties=properties,
            queue_id=queue_id,
            flag=flag,
            sys_flag=self.sys_flag,
            born_timestamp_ms=self.born_timestamp_ms,
            born_host=born_host,
        )


def send(connection: Connection, request: RemotingCommand) -> Response:
    """Put one message or a batch."""
    try:
        return _send(connection, request)
    except Refused as error:
        return request.response(error.code, error.remark, **_about_traces(connection.broker))


def _about_traces(broker: Broker) -> dict[str, Any]:
    return {"MSG_REGION": broker.settings.region, "TRACE_ON": "true"}


def _send(connection: Connection, request: RemotingCommand) -> Response:
    header, broker, host = SendHeader.of(request), connection.broker, connection.address
    topic = _topic_of(broker, header)
    queue_id = header.queue_id if header.queue_id >= 0 else broker.next_queue(topic)
    if queue_id >= topic.queue_count:
        raise Invalid(f"request queueId[{queue_id}] is illegal, {topic.topic} has fewer")
    if header.is_batch:
        messages = [
            header.message(body, _checked(properties, header.topic), queue_id, flag, host)
            for body, properties, flag in split_batch(request.body)
        ]
        puts = broker.appender.append_batch(messages, _checked(header.properties, header.topic))
        return appending.when_put(puts, lambda done: sent(broker, request, queue_id, done))
    properties = _checked(_named(header), header.topic)
    properties, queue_id = with_priority(properties, queue_id, topic.write_queues)
    message = header.message(request.body, properties, queue_id, header.flag, host)
    message.reconsume_times = header.reconsume_times
    if header.topic.startswith(set_aside.RETRY_PREFIX):
        _limit_retries(broker, message, header)
    put = broker.appender.append(message)
    handle = RecallHandle.of(message.properties, broker.settings.name)
    return appending.when_put(put, lambda done: sent(broker, request, queue_id, [done], handle))


def _topic_of(broker: Broker, header: SendHeader) -> TopicConfig:
    appending.refuse_system_topic(header.topic)
    topic = broker.topics.created_by_sending(
        header.topic, header.default_topic, header.default_queues
    )
    if not topic.permission & state.WRITABLE:
        raise Forbidden(
            f"the broker[{broker.address}] sending message is forbidden "
            f"for the topic[{header.topic}]"
        )
    return topic


def _limit_retries(broker: Broker, message: Message, header: SendHeader) -> None:
    """Make a retry sent by an orderly consumer a dead letter after the last attempt."""
    most = header.max_reconsume_times
    if most is not None and header.reconsume_times > most:
        group = header.topic.removeprefix(set_aside.RETRY_PREFIX)
        message.topic = broker.topics.of_group(set_aside.DEAD_LETTER_PREFIX, group).topic
        message.queue_id = 0


def _named(header: SendHeader) -> bytes:
    """The properties; a half message gets its producer group, which is asked for outcomes."""
    properties = header.properties
    if b"TRAN_MSG\x01true" in properties and property_value(properties, b"PGROUP") is None:
        return with_properties(properties, PGROUP=header.group)
    return properties


def _checked(properties: bytes, topic: str) -> bytes:
    """A client's properties without those of brokers.

    Raises :class:`Refused` for a recall of a message of another topic, and as
    :func:`~lakelog_broker.properties.client_properties`.
    """
    if b"TIMER_DEL_UNIQKEY\x01" in properties:
        recalled, plus, _ = (property_value(properties, _RECALL) or b"").partition(b"+")
        if plus and recalled != topic.encode():
            raise Forbidden(f"a message of the topic {topic} must not recall one of another topic")
    return client_properties(properties, topic)


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
            f"the batch is damaged at byte {start} of {len(body)}", ResponseCode.MESSAGE_ILLEGAL
        ) from None
    if not found:
        raise Refused("the batch has no message", ResponseCode.MESSAGE_ILLEGAL)
    return found


def sent(
    broker: Broker,
    request: RemotingCommand,
    queue_id: int,
    puts: Sequence[PutResult],
    handle: RecallHandle | None = None,
) -> RemotingCommand:
    """The response to a send.

    :param puts: the results of its puts, at least one
    """
    first = puts[0]
    response = request.response(
        msgId=",".join([put.message_id for put in puts]),
        queueId=queue_id,
        queueOffset=first.queue_offset,
        **_about_traces(broker),
    )
    if len(puts) > 1 or first.status is not _PUT_OK:
        response.code = _PUT_CODES[max(puts, key=lambda put: _PUT_CODES[put.status]).status]
        if response.code != ResponseCode.SUCCESS:
            response.remark = first.status.name
    if handle is not None:
        response.fields["recallHandle"] = handle.encode()
    return response


def send_back(connection: Connection, request: RemotingCommand) -> Response:
    """Put a returned message into ``%RETRY%group``, or after its last attempt ``%DLQ%group``.

    Raises :class:`~lakelog.errors.StoreError` if the message does not exist.
    """
    broker = connection.broker
    fields = request.fields
    group, level = fields["group"], int(fields["delayLevel"])
    most = fields.get("maxReconsumeTimes")
    limit = int(most) if most else broker.topics.retry_limit(group)
    stored = broker.store.look_up(int(fields["offset"]))
    times = stored.reconsume_times
    if times >= limit or level < 0:
        broker.topics.of_group(set_aside.DEAD_LETTER_PREFIX, group)
        message = set_aside.dead_letter_of(stored, group, times + 1)
        message.properties = with_properties(message.properties, _NOT_RETURNED, WAIT="false")  # type: ignore[arg-type]  # stored ones are bytes
    else:
        broker.topics.of_group(set_aside.RETRY_PREFIX, group)
        message = set_aside.retry_of(stored, group, times + 1)
        delay = str(level or 3 + times)
        message.properties = with_properties(message.properties, DELAY=delay, WAIT="false")  # type: ignore[arg-type]  # stored ones are bytes
    put = broker.appender.append_made(message)
    return appending.when_put(put, lambda done: request.response(_PUT_CODES[done.status]))


def reply(connection: Connection, request: RemotingCommand) -> Response:
    """Push a reply to its client, and store it; raises :class:`Refused`."""
    header, broker = SendHeader.of(request), connection.broker
    client_id = (property_value(header.properties, b"REPLY_TO_CLIENT") or b"").decode()
    peer = _peer_of(broker, client_id)
    if peer is None:
        raise Refused(f"process reply message fail, channel of <{client_id}> not found.")
    response = send(connection, request)
    now = str(time.time_ns() // 1_000_000)
    fields = {
        "bornHost": connection.address,
        "storeHost": broker.address,
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
    return response


def _peer_of(broker: Broker, client_id: str) -> Connection | None:
    for members in broker.members.producers.values():
        member = members.get(client_id)
        if member is not None and isinstance(member.peer, Connection):
            return member.peer
    return None


def end_transaction(connection: Connection, request: RemotingCommand) -> None:
    """Commit a transaction or roll it back; with an unknown outcome, a check follows later."""
    fields = request.fields
    outcome = int(fields["commitOrRollback"])
    if outcome not in _OUTCOMES:
        raise Refused(f"commitOrRollback must not be {outcome}")
    places = int(fields["commitLogOffset"]), int(fields["tranStateTableOffset"])
    end = connection.broker.transactions.end
    if not end(*places, _OUTCOMES[outcome], fields["producerGroup"]):
        raise Refused("Find prepared transaction message failed")


def recall(connection: Connection, request: RemotingCommand) -> Response:
    """Recall a waiting timer message by the handle in the response to its send.

    Raises :class:`Refused`.
    """
    fields, broker = request.fields, connection.broker
    topic = fields["topic"]
    if broker.topics.find(topic) is None:
        raise NoTopic(f"recall failed, the topic[{topic}] not exist")
    handle = RecallHandle.parse(fields["recallHandle"])
    group = fields.get("producerGroup", "")
    message = handle.message(topic, broker.settings, group, connection.address)
    # Java's clients send a trace of a recall only if the response has the region.
    response = request.response(msgId=handle.message_id, MSG_REGION=broker.settings.region)
    return appending.when_put(broker.appender.append_made(message), lambda _: response)


class PlainSends:
    """Serves plain sends; without users and puts that wait."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._topics = broker, broker.topics
        self._is_off = broker.settings.users is not None or broker.appender.puts_wait
        region = encode(broker.settings.region).decode().replace("%", "%%")
        self._template = answer_template(
            '"msgId":"%b%016X","queueId":"%d","queueOffset":"%d",'
            f'"MSG_REGION":{region},"TRACE_ON":"true"'
        )
        self._host, self._host_digits = "", b""
        self._kinds: dict[tuple[bytes, ...], tuple[SendHeader, TopicConfig]] = {}

    def answer(self, client: str, frame: bytes) -> bytes | None:
        """Serve the send in a frame without its first length field.

        :param client: ``address:port`` of the client
        :returns: the whole frame of the response, empty for a one-way send; ``None`` if the send
            is not plain, and nothing was done
        """
        size = 4 + int.from_bytes(frame[:4], "big")
        if self._is_off or size > len(frame):
            return None
        found = _READ(frame, 4, size)
        if found is None:
            return None
        start, queue, flags, born, flag, text, rest, way, opaque = found.groups()
        kind = self._kind((start, flags, flag, rest))
        properties = text.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")
        queue_id = int(queue)
        if kind is None or queue_id >= kind[1].queue_count or b"\\" in properties:
            return None
        header = kind[0]
        message = header.message(frame[size:], properties, queue_id, header.flag, client)
        message.born_timestamp_ms, message.reconsume_times = int(born), header.reconsume_times
        request = RemotingCommand(_CODE, int(opaque), int(way))
        try:
            put = self._broker.appender.put_common(message, properties)
        except Exception as error:  # noqa: BLE001  # it must not end the connection
            return b"" if request.is_one_way else encode_frame(failed(request, error))
        if put is None:
            return None
        return b"" if request.is_one_way else self._response(request, put)

    def _response(self, request: RemotingCommand, put: PutResult) -> bytes:
        if put.status is not _PUT_OK:
            return encode_frame(sent(self._broker, request, put.queue_id, [put]))
        if put.store_host != self._host:
            self._host = put.store_host
            self._host_digits = format_message_id(put.store_host, 0)[:-_OFFSET_DIGITS].encode()
        values = self._host_digits, put.physical_offset, put.queue_id, put.queue_offset
        return framed(self._template % (*values, request.opaque))

    def _kind(self, parts: tuple[bytes, ...]) -> tuple[SendHeader, TopicConfig] | None:
        """The common fields of sends that differ only in queue, time, properties and number.

        :returns: with the present configuration of the topic; ``None`` if a send is not plain
        """
        kind = self._kinds.get(parts)
        if kind is not None and self._topics.find(kind[0].topic) is kind[1]:
            return kind
        texts = dict(_FIELD.findall(b",".join(parts).decode()))
        header = SendHeader.of(RemotingCommand(_CODE, 0, 0, {**texts, "e": "0", "g": "0"}))
        topic = self._topics.find(header.topic)
        if topic is None or not topic.permission & state.WRITABLE:
            return None
        if appending.is_system_topic(header.topic):
            return None
        if len(self._kinds) >= _MOST_KINDS:
            self._kinds.clear()
        self._kinds[parts] = header, topic
        return header, topic
