"""Outcomes of requests; source: RocketMQ 5.3.3, ``ResponseCode``."""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Final


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
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_TIMEOUT = 210
    ILLEGAL_OPERATION = 604


BUSY: Final = "[OVERLOAD]system busy, start flow control for a while"
"""RocketMQ's remark of ``SYSTEM_BUSY``."""


class Refused(Exception):  # a response, not a failure of the broker
    """A request is answered with a code other than success, ``SYSTEM_ERROR`` if none is given.

    :ivar code: the response code; :ivar remark: the text for the client
    """

    code: int = ResponseCode.SYSTEM_ERROR

    def __init__(self, remark: str, code: int | None = None) -> None:
        super().__init__(remark)
        self.remark, self.code = remark, self.code if code is None else code


class Forbidden(Refused):
    """A request needs a right that its user or its topic does not have."""

    code = ResponseCode.NO_PERMISSION


class NotFound(Refused):
    """A request names something that does not exist."""

    code = ResponseCode.QUERY_NOT_FOUND


class NoTopic(Refused):
    """A request names a topic that does not exist, and is not created."""

    code = ResponseCode.TOPIC_NOT_EXIST


class Invalid(Refused):
    """A request has a value that is not accepted."""

    code = ResponseCode.INVALID_PARAMETER


class LimitExceeded(Invalid):
    """A request is larger than any of RocketMQ's clients sends it; it is logged."""


def check_limit(count: int, most: int, what: str) -> None:
    """Raise :class:`LimitExceeded` for more than ``most``; ``what`` has ``{}`` for the number."""
    if count > most:
        raise LimitExceeded(f"{what.format(count)}; at most {most} are taken")
