"""Statuses of responses: an error is a ``Status`` of a response, not an error of gRPC."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from lakelog.errors import PutRefused, StoreError
from lakelog.status import PutStatus
from lakelog_broker.codes import Refused, ResponseCode
from lakelog_broker.grpc.protos import CODES, proto

_LOG: Final = logging.getLogger("lakelog.broker")
_REFUSALS: Final = {
    ResponseCode.TOPIC_NOT_EXIST: "TOPIC_NOT_FOUND",
    ResponseCode.NO_PERMISSION: "FORBIDDEN",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "ILLEGAL_FILTER_EXPRESSION",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "CONSUMER_GROUP_NOT_FOUND",
    ResponseCode.SYSTEM_BUSY: "TOO_MANY_REQUESTS",
    ResponseCode.INVALID_PARAMETER: "BAD_REQUEST",
    ResponseCode.MESSAGE_ILLEGAL: "BAD_REQUEST",
    ResponseCode.ILLEGAL_OPERATION: "BAD_REQUEST",
}
_PUTS: Final = {
    PutStatus.MESSAGE_SIZE_EXCEEDED: "MESSAGE_BODY_TOO_LARGE",
    PutStatus.PROPERTIES_SIZE_EXCEEDED: "MESSAGE_PROPERTIES_TOO_LARGE",
    PutStatus.MESSAGE_ILLEGAL: "BAD_REQUEST",
    PutStatus.FLUSH_DISK_TIMEOUT: "MASTER_PERSISTENCE_TIMEOUT",
    PutStatus.FLUSH_SLAVE_TIMEOUT: "SLAVE_PERSISTENCE_TIMEOUT",
    PutStatus.SLAVE_NOT_AVAILABLE: "HA_NOT_AVAILABLE",
    PutStatus.PUT_OK: "OK",
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


def put_status(found: PutStatus) -> Any:
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
    if isinstance(error, PutRefused):
        return status(_PUTS.get(error.status, "INTERNAL_SERVER_ERROR"), str(error))
    level = logging.WARNING if isinstance(error, StoreError) else logging.ERROR
    _LOG.log(level, "a gRPC call failed", exc_info=error)
    return status("INTERNAL_SERVER_ERROR", f"{type(error).__name__}: {error}")
