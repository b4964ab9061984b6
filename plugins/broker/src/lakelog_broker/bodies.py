"""JSON bodies: reads those of requests within limits, writes those of responses as fastjson."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from lakelog_broker.codes import LimitExceeded, Refused, ResponseCode

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
