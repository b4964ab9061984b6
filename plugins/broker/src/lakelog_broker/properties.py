"""Edits encoded property strings without decoding their values.

The format is ``name 0x01 value 0x02``, repeated, in UTF-8; a client may leave out the last byte.
RocketMQ's broker parses and encodes the properties of each message that it stores, so they are in
the order of its ``HashMap``. Source: RocketMQ 5.3.3, ``MessageDecoder``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final

from lakelog.format.properties import INNER_MULTI_DISPATCH, LIGHT_QUEUE_PREFIX, light_queues
from lakelog_broker.codes import Forbidden, Invalid
from lakelog_queues.units.properties import in_order, property_value, with_properties

_OF_BROKERS: Final = (
    *(b"REAL_TOPIC", b"REAL_QID", b"CLUSTER", b"__CRC32#"),
    *(b"POP_CK", b"POP_CK_OFFSET", b"1ST_POP_TIME"),
    *(b"TIMER_OUT_MS", b"TIMER_ENQUEUE_MS", b"TIMER_DEQUEUE_MS", b"TIMER_ROLL_TIMES"),
    *(b"TRAN_PREPARED_QUEUE_OFFSET", b"TRANSACTION_CHECK_TIMES"),
    *(b"INNER_MULTI_QUEUE_OFFSET", b"INNER_NUM", b"INNER_BASE"),
)
"""Properties that only a broker may set: with them a client could write into another topic, or
end another client's transaction."""
_IS_SPECIAL: Final = re.compile(
    rb"(?:%b|DELAY|TIMER_.*|TRAN_MSG|__LITE_TOPIC|_SYS_MSG_PRIORITY_|INNER_MULTI_DISPATCH)"
    % b"|".join(_OF_BROKERS)
).fullmatch
"""Matches names of properties that only a broker may set, or by which it sets a message aside or
selects its queue."""
LITE_TOPIC: Final = b"__LITE_TOPIC"
MAX_LITE_NAME: Final = 64
"""RocketMQ's ``maxLiteTopicSize``, in characters."""
_LITE_PREFIX: Final = f"{LIGHT_QUEUE_PREFIX}$"
_LITE_NAME: Final = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_LITE_NAME}}}").fullmatch
PRIORITY: Final = b"_SYS_MSG_PRIORITY_"
_OTHER_TYPES: Final = re.compile(
    rb"(?:^|\x02)(?:TRAN_MSG\x01true|DELAY\x01|TIMER_DEL(?:IVER_MS|AY_SEC|AY_MS)\x01|__SHARDINGKEY\x01)"
).search
"""Finds the properties of the types of messages that have no priority."""
_MOST_PRIORITY: Final = (1 << 31) - 1
_MOST_ORDERS: Final = 1024
_HAS_OF_BROKERS: Final = re.compile(rb"(?:^|\x02)(?:%b)\x01" % b"|".join(_OF_BROKERS)).search


class CommonProperties:
    """Computes the stored form of common property strings by one look-up of all their names.

    :param added: property string of the properties to add
    """

    def __init__(self, added: bytes) -> None:
        self._added = [*filter(None, added.split(b"\x02")), b""]
        self._orders: dict[tuple[bytes, ...], Callable[[list[bytes]], Any] | None] = {}

    def stored(self, properties: bytes) -> bytes | None:
        """As :func:`stored_properties`, with the added properties.

        ``None`` if only a broker may set one of the properties, if one makes the broker set the
        message aside, or if one is repeated or lacks a name or a value.
        """
        if properties[-1:] != b"\x02":
            properties += b"\x02"
        parts = properties.split(b"\x02")
        parts.pop()
        if properties.count(b"\x01") != len(parts) or b"\x01\x02" in properties:
            return None
        names = tuple([each.partition(b"\x01")[0] for each in parts])
        if names not in self._orders:
            self._note(names)
        order = self._orders[names]
        return None if order is None else b"\x02".join(order(parts + self._added))

    def _note(self, names: tuple[bytes, ...]) -> None:
        if len(self._orders) >= _MOST_ORDERS:
            self._orders.clear()
        every = (*names, *(each.partition(b"\x01")[0] for each in self._added[:-1]))
        at = {name: place for place, name in enumerate(every)}
        is_common = b"" not in at and len(at) == len(every) and not any(map(_IS_SPECIAL, names))
        order = [at[name] for name in in_order(every)]
        self._orders[names] = itemgetter(*order, len(every)) if is_common else None


def client_properties(properties: bytes, topic: str) -> bytes:
    r"""A client's property string, without the properties that only a broker may set.

    A message for a Lite topic gets the property that makes it feed its light queue. Raises
    :class:`Refused` for a name of a Lite topic that RocketMQ refuses, or one of another topic.

    >>> client_properties(b"REAL_TOPIC\x01orders\x02TAGS\x01b", "orders")
    b'TAGS\x01b\x02'
    """
    if _HAS_OF_BROKERS(properties):
        properties = with_properties(properties, _OF_BROKERS)
    if b"__LITE_TOPIC\x01" not in properties and b"INNER_MULTI_DISPATCH\x01" not in properties:
        return properties
    name = property_value(properties, LITE_TOPIC)
    if name is not None:
        light = light_queue(topic, name.decode(errors="replace"))
        return with_properties(properties, INNER_MULTI_DISPATCH=light)
    dispatch = property_value(properties, INNER_MULTI_DISPATCH.encode()) or b""
    for light in light_queues(dispatch.decode(errors="replace")):
        if lite_parent(light) not in {None, topic}:
            raise Forbidden(f"a message of the topic {topic} must not go to {light}")
    return properties


def with_priority(properties: bytes, queue_id: int, queue_count: int) -> tuple[bytes, int]:
    r"""The properties and the queue id of a message that may have a priority.

    A priority is a queue id: the highest one is handed out first. Messages with a delay, of a
    transaction or of a message group have none. Source: RocketMQ 5.5.1, ``SendMessageProcessor``.

    >>> with_priority(b"_SYS_MSG_PRIORITY_\x019\x02", 0, 4)[1]
    3
    """
    if b"_SYS_MSG_PRIORITY_\x01" not in properties:
        return properties, queue_id
    if _OTHER_TYPES(properties):
        return with_properties(properties, (PRIORITY,)), queue_id
    value = property_value(properties, PRIORITY) or b""
    if not value.isdigit() or int(value) > _MOST_PRIORITY:
        return properties, queue_id
    return properties, min(int(value), queue_count - 1)


def light_queue(topic: str, name: str) -> str:
    """The light queue of a Lite topic below ``topic``; raises :class:`Invalid` for its name.

    >>> light_queue("orders", "customer-7")
    '%LMQ%$orders$customer-7'
    """
    if not _LITE_NAME(name):
        raise Invalid(
            f"the lite topic {name[:100]!r} must have 1 to {MAX_LITE_NAME} characters of "
            "a-z A-Z 0-9 _ -"
        )
    return f"{_LITE_PREFIX}{topic}${name}"


def lite_parent(light: str) -> str | None:
    """The parent topic of a Lite topic's light queue; ``None`` for another queue."""
    return light.split("$")[1] if light.startswith(_LITE_PREFIX) else None
