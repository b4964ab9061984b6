"""Text as fastjson writes it, where it is no JSON: objects whose keys are objects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


def object_keys(rows: Iterable[tuple[Mapping[str, Any], Any]]) -> str:
    """A map whose keys are objects.

    >>> object_keys([({"queueId": 0}, 7)])
    '{{"queueId": 0}:7}'
    """
    return "{" + ",".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in rows) + "}"


def queue_object(broker: str, topic: str, queue_id: int) -> dict[str, Any]:
    """A ``MessageQueue`` of RocketMQ."""
    return {"brokerName": broker, "queueId": queue_id, "topic": topic}
