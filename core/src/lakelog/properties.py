"""Property strings: ``name 0x01 value 0x02``, repeated, in UTF-8.

Names may repeat (the last value counts) and their order means nothing, yet both are kept: a
property string that was read is never written anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lakelog.layout import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

TAGS: Final = "TAGS"
KEYS: Final = "KEYS"
KEY_SEPARATOR: Final = " "
UNIQUE_KEY: Final = "UNIQ_KEY"
DELAY: Final = "DELAY"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
LIGHT_QUEUE_PREFIX: Final = "%LMQ%"
MULTI_DISPATCH_SEPARATOR: Final = ","
_WITHOUT_LIGHT_QUEUES: Final = ("%RETRY%", "rmq_sys_")
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
"""Messages that wait for their time of delivery."""
REPAIRED_TOPIC: Final = "LAKELOG_REPAIRED"
"""Records that ``lakelog.repair`` puts in the place of damage."""

_NAME_VALUE: Final = NAME_VALUE_SEPARATOR.decode()
_PROPERTY: Final = PROPERTY_SEPARATOR.decode()


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The property string of ``properties``, in their order.

    Raises ``ValueError`` for a name or value that holds a separator, ``TypeError`` for one that
    is no string.
    """
    pieces: list[str] = []
    for name, value in properties.items():
        pieces += name, _NAME_VALUE, value, _PROPERTY
    text = "".join(pieces)
    if text.count(_NAME_VALUE) != len(properties) or text.count(_PROPERTY) != len(properties):
        raise ValueError(_separator_inside(properties))
    return text.encode()


def _separator_inside(properties: Mapping[str, str]) -> str:
    bad = next(
        name
        for name, value in properties.items()
        if any(mark in name + value for mark in (_NAME_VALUE, _PROPERTY))
    )
    return f"property {bad!r} holds the character 0x01 or 0x02, which separates properties"


def join_keys(keys: str | Sequence[str]) -> str:
    """``keys`` as the property KEYS holds them; one string is taken as it is."""
    return keys if isinstance(keys, str) else KEY_SEPARATOR.join(keys)


def decode_properties(data: bytes) -> dict[str, str]:
    """Names and values; of a name that repeats, the last value.

    Never raises: what is no property is passed over, and broken UTF-8 is replaced.
    """
    pairs = (
        piece.partition(_NAME_VALUE) for piece in data.decode(errors="replace").split(_PROPERTY)
    )
    return {name: value for name, separator, value in pairs if separator}


def feeds_light_queues(topic: str) -> bool:
    """Whether messages of ``topic`` may feed light queues (``MixAll.topicAllowsLMQ``)."""
    return not topic.startswith(_WITHOUT_LIGHT_QUEUES) and topic != SCHEDULE_TOPIC


def light_queues(dispatch: str) -> list[str]:
    """The light queues that a value of ``INNER_MULTI_DISPATCH`` names, in order."""
    names = dispatch.split(MULTI_DISPATCH_SEPARATOR)
    return [name for name in names if name.startswith(LIGHT_QUEUE_PREFIX)]
