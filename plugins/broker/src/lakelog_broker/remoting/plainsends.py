"""A fast path for single messages as RocketMQ's Java client encodes them.

Most of the cost of a send is the parsing of its header. The headers of the Java client have JSON of
one form, and most differ only in queue, time, properties and number. One regular expression reads
these; all other fields together are the key of a cached :class:`_Kind`. Any other send is left to
:func:`~lakelog_broker.remoting.sending.send`, before it has any effect: errors,
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
from lakelog_broker.remoting.frame import RemotingCommand, answer_template, encode_frame, framed
from lakelog_broker.remoting.requests import RequestCode
from lakelog_broker.remoting.sending import SendHeader, sent
from lakelog_broker.remoting.server import failed
from lakelog_broker.state.topics import WRITABLE
from lakelog_rocketmq.config import TopicConfig

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
    """

    topic: str
    config: TopicConfig
    flag: int
    sys_flag: int
    reconsume_times: int


class PlainSends:
    """Serves plain sends; without users and puts that wait."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._topics = broker, broker.topics
        self._is_off = broker.settings.users is not None or broker.appender.puts_wait
        region = json.dumps(broker.settings.region, ensure_ascii=False).replace("%", "%%")
        self._template = answer_template(
            '"msgId":"%b%016X","queueId":"%d","queueOffset":"%d",'
            f'"MSG_REGION":{region},"TRACE_ON":"true"'
        )
        self._host, self._host_digits = "", b""
        self._kinds: dict[tuple[bytes, ...], _Kind] = {}

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
        if kind is None or queue_id >= kind.config.queue_count or b"\\" in properties:
            return None
        message = Message(
            kind.topic,
            frame[size:],
            queue_id=queue_id,
            flag=kind.flag,
            sys_flag=kind.sys_flag,
            born_timestamp_ms=int(born),
            born_host=client,
            reconsume_times=kind.reconsume_times,
        )
        request = RemotingCommand(_CODE, int(opaque), int(way))
        try:
            put = self._broker.appender.put_common(message, properties)
        except Exception as error:  # noqa: BLE001  # as of any request
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
            header.flag,
            header.sys_flag,
            header.reconsume_times,
        )
