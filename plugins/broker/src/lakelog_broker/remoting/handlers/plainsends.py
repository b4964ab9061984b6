"""A fast path for single messages as RocketMQ's Java client encodes them.

Most of the cost of a send is the parsing of its header. The headers of the Java client have JSON of
one form, and most differ only in queue, time, properties and number. One regular expression reads
these; all other fields together are the key of a cached :class:`_Kind`. Any other send is left to
:class:`~lakelog_broker.remoting.handlers.sending.SendRequests`, before it has any effect: errors,
new topics, batches, retries, delayed messages, puts that wait, and brokers with users.
"""

from __future__ import annotations

import json
import re
from typing import Final

import attrs

from lakelog import Message, PutResult
from lakelog.format.message_id import format_message_id
from lakelog.results import PutStatus
from lakelog_broker.appending import is_system_topic
from lakelog_broker.broker import Broker
from lakelog_broker.codes import RequestCode
from lakelog_broker.remoting.connection import Connection, failed
from lakelog_broker.remoting.frame import RemotingCommand, answer_template, framed
from lakelog_broker.remoting.handlers.sending import SendHeader, SendRequests
from lakelog_broker.state.topics import WRITABLE
from lakelog_rocketmq.config.topics import TopicConfig

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
_PUT_OK: Final = PutStatus.PUT_OK
_OFFSET_DIGITS: Final = 16
"""Length of the physical offset, the last part of a message id, in hexadecimal digits."""


@attrs.frozen
class _Kind:
    """The common part of sends whose headers differ only in queue, time, properties and number.

    :ivar config: the topic's configuration when the kind was cached
    :ivar queues: number of the topic's queues
    """

    topic: str
    config: TopicConfig
    queues: int
    flag: int
    sys_flag: int
    reconsume_times: int


class PlainSends:
    """Serves plain sends.

    :param sends: builds the response if a put has another status than ``PUT_OK``
    :param has_users: whether the broker checks users; no send is plain then
    """

    def __init__(self, broker: Broker, sends: SendRequests, *, has_users: bool) -> None:
        self._appender, self._topics, self._sends = broker.appender, broker.topics, sends
        self._is_off = has_users or broker.appender.puts_wait
        region = json.dumps(broker.settings.region, ensure_ascii=False).replace("%", "%%")
        self._template = answer_template(
            '"msgId":"%b%016X","queueId":"%d","queueOffset":"%d",'
            f'"MSG_REGION":{region},"TRACE_ON":"true"'
        )
        self._host, self._host_digits = "", b""
        self._kinds: dict[tuple[bytes, ...], _Kind] = {}

    def take(self, connection: Connection, frame: bytes) -> bool:
        """Serve the send in a frame without its first length field; false if it is not plain."""
        size = 4 + int.from_bytes(frame[:4], "big")
        if self._is_off or size > len(frame):
            return False
        found = _READ(frame, 4, size)
        if found is None:
            return False
        start, queue, flags, born, flag, text, rest, way, opaque = found.groups()
        kind = self._kind((start, flags, flag, rest))
        properties = text.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")
        queue_id = int(queue)
        if kind is None or queue_id >= kind.queues or b"\\" in properties:
            return False
        message = Message(
            kind.topic,
            frame[size:],
            queue_id=queue_id,
            flag=kind.flag,
            sys_flag=kind.sys_flag,
            born_timestamp_ms=int(born),
            born_host=connection.peer,
            reconsume_times=kind.reconsume_times,
        )
        request = RemotingCommand(_CODE, int(opaque), int(way))
        try:
            put = self._appender.put_common(message, properties)
        except Exception as error:  # noqa: BLE001  # as of any request
            connection.respond(request, failed(request, error))
            return True
        if put is not None and not request.is_one_way:
            self._answer(connection, request, put)
        return put is not None

    def _answer(self, connection: Connection, request: RemotingCommand, put: PutResult) -> None:
        if put.status is not _PUT_OK:
            connection.respond(request, self._sends.sent(request, put.queue_id, [put]))
            return
        if put.store_host != self._host:
            self._host = put.store_host
            self._host_digits = format_message_id(put.store_host, 0)[:-_OFFSET_DIGITS].encode()
        values = self._host_digits, put.physical_offset, put.queue_id, put.queue_offset
        connection.respond_frame(framed(self._template % (*values, request.opaque)))

    def _kind(self, parts: tuple[bytes, ...]) -> _Kind | None:
        kind = self._kinds.get(parts)
        if kind is not None and self._topics.find(kind.topic) is kind.config:
            return kind
        kind = self._read_kind(b",".join(parts).decode())
        if kind is not None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            self._kinds[parts] = kind
        return kind

    def _read_kind(self, fields: str) -> _Kind | None:
        texts = dict(_FIELD.findall(fields))
        header = SendHeader.of(RemotingCommand(_CODE, 0, 0, {**texts, "e": "0", "g": "0"}))
        config = self._topics.find(header.topic)
        if config is None or not config.permission & WRITABLE or is_system_topic(header.topic):
            return None
        return _Kind(
            header.topic,
            config,
            max(config.read_queues, config.write_queues),
            header.flag,
            header.sys_flag,
            header.reconsume_times,
        )
