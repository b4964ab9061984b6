"""Messages of ``apache.rocketmq.v2``, and their conversion to messages of the store, and back.

The message classes are in a separate descriptor pool: generated modules register in protobuf's
default pool, and RocketMQ's Python client has the same messages under other file names. So a
process could not import both. The descriptor set was compiled from RocketMQ's three public files by
``protoc --include_imports --descriptor_set_out``.

An error is a ``Status`` of a response, not an error of gRPC. Source: RocketMQ 5.3.3, the proxy's
``SendMessageActivity`` and ``GrpcConverter``.
"""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Callable, Iterable
from functools import cache
from importlib.resources import files
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from lakelog import Message, StoredMessage, errors, results
from lakelog.format.properties import encode_properties
from lakelog_broker.codes import Invalid, Refused, ResponseCode
from lakelog_broker.popping.service import Popped
from lakelog_broker.properties import client_properties, light_queue, with_priority
from lakelog_queues.groups.set_aside import DLQ_ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC
from lakelog_queues.units.tags import java_hash
from lakelog_rocketmq.config import TopicConfig

_PACKAGE: Final = "apache.rocketmq.v2"


def _filled_pool() -> descriptor_pool.DescriptorPool:
    content = (files(__package__) / "rocketmq_v2.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(content).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL: Final = _filled_pool()
SERVICE: Final[Any] = _POOL.FindServiceByName(f"{_PACKAGE}.MessagingService")
CODES: Final[dict[str, int]] = {
    each.name: each.number for each in _POOL.FindEnumTypeByName(f"{_PACKAGE}.Code").values
}
"""The numbers of ``Code``, by name."""


@cache
def proto(name: str) -> Any:
    """The message class with this short name; raises ``KeyError``."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


_LOG: Final = logging.getLogger("lakelog.broker")
_REFUSALS: Final = {
    ResponseCode.TOPIC_NOT_EXIST: "TOPIC_NOT_FOUND",
    ResponseCode.NO_PERMISSION: "FORBIDDEN",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "ILLEGAL_FILTER_EXPRESSION",
    ResponseCode.INVALID_PARAMETER: "BAD_REQUEST",
    ResponseCode.MESSAGE_ILLEGAL: "BAD_REQUEST",
    ResponseCode.ILLEGAL_OPERATION: "BAD_REQUEST",
}
_PUTS: Final = {
    results.PutStatus.MESSAGE_SIZE_EXCEEDED: "MESSAGE_BODY_TOO_LARGE",
    results.PutStatus.PROPERTIES_SIZE_EXCEEDED: "MESSAGE_PROPERTIES_TOO_LARGE",
    results.PutStatus.MESSAGE_ILLEGAL: "BAD_REQUEST",
    results.PutStatus.FLUSH_DISK_TIMEOUT: "MASTER_PERSISTENCE_TIMEOUT",
    results.PutStatus.FLUSH_SLAVE_TIMEOUT: "SLAVE_PERSISTENCE_TIMEOUT",
    results.PutStatus.SLAVE_NOT_AVAILABLE: "HA_NOT_AVAILABLE",
    results.PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: "LITE_TOPIC_QUOTA_EXCEEDED",
    results.PutStatus.PUT_OK: "OK",
}


class IllegalRequest(Exception):  # an answer, not a failure of the broker
    """A request is answered with a code.

    :ivar code: the code's name
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def status(code: str = "OK", text: str = "OK") -> Any:
    """A ``Status`` with the code of this name."""
    return proto("Status")(code=CODES[code], message=text)


def put_status(found: results.PutStatus) -> Any:
    """The ``Status`` for the result of a put."""
    return status(_PUTS.get(found, "INTERNAL_SERVER_ERROR"), found.name)


def common_status(found: Iterable[Any]) -> Any:
    """The status of a response with entries: their common status, or ``MULTIPLE_RESULTS``."""
    by_code = {each.code: each for each in found}
    if len(by_code) == 1:
        return next(iter(by_code.values()))
    return status("MULTIPLE_RESULTS" if by_code else "BAD_REQUEST", "see the entries")


def status_of(error: Exception) -> Any:
    """The status of the response to a request that raised ``error``; logs unexpected errors."""
    if isinstance(error, IllegalRequest):
        return status(error.code, str(error))
    if isinstance(error, Refused):
        name = _REFUSALS.get(ResponseCode(error.code), "INTERNAL_SERVER_ERROR")
        return status(name, error.remark)
    if isinstance(error, errors.PutRefused):
        return status(_PUTS.get(error.status, "INTERNAL_SERVER_ERROR"), str(error))
    level = logging.WARNING if isinstance(error, errors.StoreError) else logging.ERROR
    _LOG.log(level, "a gRPC call failed", exc_info=error)
    return status("INTERNAL_SERVER_ERROR", f"{type(error).__name__}: {error}")


NORMAL, FIFO, DELAY, TRANSACTION, LITE, PRIORITY = range(1, 7)
"""Numbers of ``MessageType``."""
_TYPES: Final = {
    "NORMAL": NORMAL,
    "FIFO": FIFO,
    "DELAY": DELAY,
    "TRANSACTION": TRANSACTION,
    "LITE": LITE,
    "PRIORITY": PRIORITY,
}
GZIP: Final = 2
_MD5: Final = 2
_COMPRESSED: Final = 1
"""The bit of ``sys_flag`` for a compressed body."""
_SYSTEM: Final = """
KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET
MAX_OFFSET BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG
RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES
CONSUME_START_TIME POP_CK POP_CK_OFFSET 1ST_POP_TIME TRAN_PREPARED_QUEUE_OFFSET
TRANSACTION_CHECK_TIMES CHECK_IMMUNITY_TIME_IN_SECONDS DUP_INFO INSTANCE_ID
CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE
INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET INNER_NUM INNER_BASE TIMER_DELIVER_MS
TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS
TIMER_ROLL_TIMES TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __SHARDINGKEY __CRC32#
__STARTDELIVERTIME DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID __BORNHOST BORN_TIMESTAMP
__TRACE_CONTEXT __LITE_TOPIC _SYS_MSG_PRIORITY_
"""
SYSTEM_PROPERTIES: Final = frozenset(_SYSTEM.split())
"""Properties that are reserved: not accepted from clients, and not sent to them."""
_DIGESTS: Final[dict[int, Callable[[bytes], int]]] = {
    1: zlib.crc32,
    2: lambda body: int(hashlib.md5(body, usedforsecurity=False).hexdigest(), 16),
    3: lambda body: int(hashlib.sha1(body, usedforsecurity=False).hexdigest(), 16),
}


def place_of(transaction_id: str) -> tuple[int, int]:
    """Parse a transaction id: physical offset and queue offset of the half message.

    Raises :class:`IllegalRequest`.
    """
    try:
        place, half = (int(each, 16) for each in transaction_id.split("."))
    except ValueError:
        text = f"{transaction_id[:100]!r} is no id of a transaction"
        raise IllegalRequest("INVALID_TRANSACTION_ID", text) from None
    return place, half


def transaction_id(physical_offset: int, queue_offset: int) -> str:
    """The id of a transaction: both offsets of its half message, so that no table is needed."""
    return f"{physical_offset:x}.{queue_offset:x}"


def accepted_types(topic: TopicConfig) -> list[int]:
    """Numbers of the message types that a topic accepts, by its attribute ``message.type``.

    A topic without the attribute accepts all types of 5.0 here; RocketMQ's proxy accepts only
    ``NORMAL``. Clients of 5.0 refuse a route with a later type.
    """
    found = _TYPES.get(topic.attributes.get("message.type", "MIXED").upper())
    return [NORMAL, FIFO, DELAY, TRANSACTION] if found is None else [found]


def name_of(resource: Any) -> str:
    """The name of a topic or group; with a namespace it is ``NAMESPACE%NAME``."""
    if resource.resource_namespace:
        return f"{resource.resource_namespace}%{resource.name}"
    return str(resource.name)


def name_in(value: Any) -> Any:
    """As :func:`name_of` for a resource; any other value as it is."""
    return name_of(value) if hasattr(value, "resource_namespace") else value


def milliseconds(stamp: Any) -> int:
    """A ``Timestamp`` or ``Duration`` in ms."""
    return int(stamp.seconds) * 1000 + int(stamp.nanos) // 1_000_000


def lite_queue(topic: str, name: str) -> str:
    """As :func:`~lakelog_broker.properties.light_queue`; raises :class:`IllegalRequest`."""
    try:
        return light_queue(topic, name)
    except Invalid as error:
        raise IllegalRequest("ILLEGAL_LITE_TOPIC", error.remark) from None


def stored_form(sent: Any, queue_count: int, next_queue: int) -> Message:
    """Convert a client's message to a message to put; raises :class:`IllegalRequest`.

    :param sent: a ``Message`` of the protocol
    :param queue_count: number of the topic's queues
    :param next_queue: queue id for a message without a message group
    """
    system, topic = sent.system_properties, name_of(sent.topic)
    _check(sent)
    properties = dict(sent.user_properties)
    properties["UNIQ_KEY"] = system.message_id
    if system.tag:
        properties["TAGS"] = system.tag
    if system.keys:
        properties["KEYS"] = " ".join(system.keys)
    if system.HasField("trace_context"):
        properties["__TRACE_CONTEXT"] = system.trace_context
    if system.message_type == TRANSACTION:
        properties |= {"TRAN_MSG": "true", "PGROUP": topic}
        if system.HasField("orphaned_transaction_recovery_duration"):
            seconds = system.orphaned_transaction_recovery_duration.seconds
            properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(seconds)
    if system.HasField("delivery_timestamp"):
        properties["TIMER_DELIVER_MS"] = str(milliseconds(system.delivery_timestamp))
    queue_id = next_queue
    if system.message_group:
        properties["__SHARDINGKEY"] = system.message_group
        queue_id = java_hash(system.message_group) % queue_count
    if system.HasField("priority"):
        properties["_SYS_MSG_PRIORITY_"] = str(system.priority)
    if system.lite_topic:
        lite_queue(topic, system.lite_topic)
        properties["__LITE_TOPIC"] = system.lite_topic
    encoded = client_properties(encode_properties(properties), topic)
    encoded, queue_id = with_priority(encoded, queue_id, queue_count)
    return Message(
        topic,
        sent.body,
        properties=encoded,
        queue_id=queue_id,
        sys_flag=_COMPRESSED if system.body_encoding == GZIP else 0,
        born_timestamp_ms=milliseconds(system.born_timestamp) or None,
    )


def _check(sent: Any) -> None:
    system = sent.system_properties
    if not system.message_id:
        raise IllegalRequest("ILLEGAL_MESSAGE_ID", "the message has no message id")
    if system.tag and (not system.tag.strip() or "|" in system.tag):
        raise IllegalRequest("ILLEGAL_MESSAGE_TAG", f"the tag {system.tag!r} is blank or has a |")
    if any(not key.strip() for key in system.keys):
        raise IllegalRequest("ILLEGAL_MESSAGE_KEY", "a key is blank")
    for name in sent.user_properties:
        if name in SYSTEM_PROPERTIES:
            text = f"the property {name} is reserved"
            raise IllegalRequest("ILLEGAL_MESSAGE_PROPERTY_KEY", text)
    texts = [*sent.user_properties, *sent.user_properties.values(), *system.keys]
    texts += [system.tag, system.message_id, system.message_group, system.trace_context]
    if any("\x01" in text or "\x02" in text for text in texts):
        text = "a property has the character 1 or 2, which separate properties"
        raise IllegalRequest("ILLEGAL_MESSAGE_PROPERTY_KEY", text)
    digest = system.body_digest
    if digest.checksum and digest.type in _DIGESTS:
        try:
            is_whole = int(digest.checksum, 16) == _DIGESTS[digest.type](sent.body)
        except ValueError:
            is_whole = False
        if not is_whole:
            text = f"the body has not the checksum {digest.checksum[:100]}"
            raise IllegalRequest("MESSAGE_CORRUPTED", text)


def sent_form(stored: StoredMessage, topic: str | None = None) -> Any:
    """Convert a stored message to a ``Message`` of the protocol.

    :param topic: the topic for the client; ``None`` is the stored one
    """
    properties = stored.properties
    message = proto("Message")(body=stored.body)
    message.topic.name = topic or stored.topic
    for name, value in properties.items():
        if name not in SYSTEM_PROPERTIES:
            message.user_properties[name] = value
    system = message.system_properties
    if "TAGS" in properties:
        system.tag = properties["TAGS"]
    system.keys.extend(key for key in properties.get("KEYS", "").split(" ") if key)
    system.message_id = properties.get("UNIQ_KEY") or stored.message_id
    system.body_digest.type = _MD5
    digest = hashlib.md5(stored.body, usedforsecurity=False).hexdigest()
    system.body_digest.checksum = digest.upper()
    system.body_encoding = GZIP if stored.sys_flag & _COMPRESSED else 1
    system.message_type = _type_of(properties)
    system.born_timestamp.FromMilliseconds(stored.born_timestamp_ms)
    system.born_host = stored.born_host
    system.store_timestamp.FromMilliseconds(stored.store_timestamp_ms)
    system.store_host = stored.store_host
    system.queue_id, system.queue_offset = stored.queue_id, stored.queue_offset
    if "__SHARDINGKEY" in properties:
        system.message_group = properties["__SHARDINGKEY"]
    if "__LITE_TOPIC" in properties:
        system.lite_topic = properties["__LITE_TOPIC"]
    if properties.get("_SYS_MSG_PRIORITY_", "").isdigit():
        system.priority = int(properties["_SYS_MSG_PRIORITY_"])
    if "__TRACE_CONTEXT" in properties:
        system.trace_context = properties["__TRACE_CONTEXT"]
    if properties.get("TIMER_DELIVER_MS", "").isdigit():
        system.delivery_timestamp.FromMilliseconds(int(properties["TIMER_DELIVER_MS"]))
    if DLQ_ORIGIN_TOPIC in properties:
        system.dead_letter_queue.topic = properties[DLQ_ORIGIN_TOPIC]
        system.dead_letter_queue.message_id = properties.get(DLQ_ORIGIN_MESSAGE_ID, "")
    return message


def _type_of(properties: dict[str, str]) -> int:
    if "TRAN_MSG" in properties:
        return TRANSACTION
    if "__SHARDINGKEY" in properties:
        return FIFO
    if properties.keys() & {"DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"}:
        return DELAY
    if "_SYS_MSG_PRIORITY_" in properties:
        return PRIORITY
    return LITE if "__LITE_TOPIC" in properties else NORMAL


def popped_form(popped: Popped, topic: str, invisible_ms: int) -> Any:
    """Convert a handed-out message to a ``Message`` of the protocol, with its receipt handle.

    :param topic: the topic for the client
    """
    message = sent_form(popped.message, topic)
    system = message.system_properties
    system.receipt_handle = str(popped.handle)
    system.delivery_attempt = popped.attempt
    system.invisible_duration.FromMilliseconds(invisible_ms)
    return message
