"""Codes of the remoting protocol; source: RocketMQ 5.3.3, ``RequestCode``, ``ResponseCode``.

JSON bodies: reads those of requests within limits, writes those of responses as fastjson.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import IntEnum, unique
from typing import Any, Final, Protocol


@unique
class RequestCode(IntEnum):
    """Requests that this broker serves or sends."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    GET_ALL_TOPIC_CONFIG = 21
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    CHECK_CLIENT_CONFIG = 46
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    GET_KVLIST_BY_NAMESPACE = 219
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    GET_TOPICS_BY_CLUSTER = 224
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    GET_CONSUMER_RUNNING_INFO = 307
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    CLONE_GROUP_OFFSET = 314
    VIEW_BROKER_STATS_DATA = 315
    GET_BROKER_CONSUME_STATS = 317
    GET_NAMESRV_CONFIG = 319
    SEND_BATCH_MESSAGE = 320
    QUERY_CONSUME_QUEUE = 321
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    GET_ALL_PRODUCER_INFO = 328
    QUERY_TOPICS_BY_CONSUMER = 343
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    LITE_PULL_MESSAGE = 361
    RECALL_MESSAGE = 370
    QUERY_ASSIGNMENT = 400
    SET_MESSAGE_REQUEST_MODE = 401
    POP_MESSAGE = 200050
    ACK_MESSAGE = 200051
    PEEK_MESSAGE = 200052
    CHANGE_MESSAGE_INVISIBLETIME = 200053
    NOTIFICATION = 200054
    BATCH_ACK_MESSAGE = 200151


@unique
class ResponseCode(IntEnum):
    """Outcomes of a request."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_TIMEOUT = 210
    ILLEGAL_OPERATION = 604


class Refused(Exception):  # a response, not a failure of the broker
    """A request is answered with a code other than success.

    :ivar code: the response code; :ivar remark: the text for the client
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code, self.remark = code, remark


class LimitExceeded(Refused):
    """A request is larger than any of RocketMQ's clients sends it; it is logged."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.INVALID_PARAMETER, remark)


MAX_JSON_BYTES: Final = 1 << 20
"""Largest accepted body; the largest one of a client is a heartbeat with many groups."""
MAX_JSON_DEPTH: Final = 32
"""Deepest accepted nesting of arrays and objects; RocketMQ's bodies have 5 levels."""


class HasBody(Protocol):
    """A request."""

    body: bytes


def body_of(request: HasBody) -> Any:
    """Parse the body of a request, a JSON object.

    Raises :class:`Refused`, and :class:`LimitExceeded` for a body that is too large or too deep.
    """
    if len(request.body) > MAX_JSON_BYTES:
        remark = f"a body of {len(request.body)} bytes; at most {MAX_JSON_BYTES} are taken"
        raise LimitExceeded(remark)
    try:
        content = json.loads(request.body)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise Refused(ResponseCode.INVALID_PARAMETER, f"the body is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise Refused(ResponseCode.INVALID_PARAMETER, "the body is no JSON object")
    _check_depth(content)
    return content


def _check_depth(content: Any) -> None:
    inner = [content]
    for _ in range(MAX_JSON_DEPTH):
        values = [each.values() if isinstance(each, dict) else each for each in inner]
        inner = [each for many in values for each in many if isinstance(each, dict | list)]
        if not inner:
            return
    raise _too_deep()


def _too_deep() -> LimitExceeded:
    return LimitExceeded(f"the body has more than {MAX_JSON_DEPTH} arrays and objects in a row")


def object_keys(rows: Iterable[tuple[Mapping[str, Any], Any]]) -> str:
    """Encode a map whose keys are objects, as fastjson does; the result is not valid JSON.

    >>> object_keys([({"queueId": 0}, 7)])
    '{{"queueId": 0}:7}'
    """
    return "{" + ",".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in rows) + "}"


def queue_object(broker: str, topic: str, queue_id: int) -> dict[str, Any]:
    """The JSON object of RocketMQ's ``MessageQueue``."""
    return {"brokerName": broker, "queueId": queue_id, "topic": topic}
