"""Property strings: ``name 0x01 value 0x02``, repeated, in UTF-8.

Names may repeat (the last value counts), and their order has no meaning. A property string from a
record is kept byte for byte, and never encoded again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from lakelog.arguments import WrongValue, shown, wrong_type
from lakelog.format.layout import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

TAGS: Final = "TAGS"
KEYS: Final = "KEYS"
KEY_SEPARATOR: Final = " "
TAG_SEPARATOR: Final = "||"
"""Separates tags in a filter."""
JAVA_BLANK: Final = "".join(map(chr, range(0x21)))
"""Characters that Java's ``trim`` removes."""
UNIQUE_KEY: Final = "UNIQ_KEY"
DELAY: Final = "DELAY"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
LIGHT_QUEUE_PREFIX: Final = "%LMQ%"
MULTI_DISPATCH_SEPARATOR: Final = ","
_WITHOUT_LIGHT_QUEUES: Final = ("%RETRY%", "rmq_sys_")
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
"""Topic of messages that wait for their delivery time."""
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""Topic of messages that wait for a time of delivery in ms."""
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE: Final = "REAL_QID"
"""Properties of a waiting message: its own topic and queue id."""
TIMER_DELAY: Final = "TIMER_DELAY_MS"
TIMER_DELIVER: Final = "TIMER_DELIVER_MS"
TIMER_OUT: Final = "TIMER_OUT_MS"
"""The time of delivery in ms since 1970, of any timer message."""
REPAIRED_TOPIC: Final = "LAKELOG_REPAIRED"
"""Topic of records that ``lakelog.repair`` writes over damage."""

_NAME_VALUE: Final = NAME_VALUE_SEPARATOR.decode()
_PROPERTY: Final = PROPERTY_SEPARATOR.decode()


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The property string of ``properties``, in their order.

    Raises ``ValueError`` for a name or value that contains a separator, and ``TypeError`` for one
    that is not a string.
    """
    pieces: list[str] = []
    for name, value in properties.items():
        pieces += name, _NAME_VALUE, value, _PROPERTY
    try:
        text = "".join(pieces)
    except TypeError:
        raise _fault(properties) from None
    if text.count(_NAME_VALUE) != len(properties) or text.count(_PROPERTY) != len(properties):
        raise _fault(properties)
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _fault(properties) from None


def _fault(properties: Mapping[str, str]) -> TypeError | ValueError:
    """The error for the first property that is no text, or contains a separator."""
    for name, value in properties.items():
        if not isinstance(name, str):
            return wrong_type("the name of a property", name, "a str")
        field = name.lower() if name in (TAGS, KEYS) else f"property {name!r}"
        if not isinstance(value, str):
            return wrong_type(field, value, "a str")
        if _NAME_VALUE in name + value or _PROPERTY in name + value:
            what = "holds the character 0x01 or 0x02, which separates properties"
            return WrongValue(f"{field} {what}")
        if any("\ud800" <= char <= "\udfff" for char in name + value):
            return WrongValue(
                f"{field} is {shown(value)}, which is not a str that UTF-8 can encode"
            )
    return TypeError("names and values of properties must be str")


def join_keys(keys: str | Sequence[str]) -> str:
    """The value of property KEYS for ``keys``; a single string is one key.

    Raises ``TypeError`` for anything but strings, and ``ValueError`` for a key with a space, which
    RocketMQ would split into two.
    """
    several = (keys,) if isinstance(keys, str) else keys
    if isinstance(several, bytes | bytearray) or not isinstance(several, Iterable):
        raise wrong_type("keys", keys, "a str for one key, or a list of them")
    found = list(several)
    for key in found:
        if not isinstance(key, str):
            raise wrong_type("keys", keys, "a str for one key, or a list of them")
        if KEY_SEPARATOR in key:
            raise WrongValue(
                f"keys is {keys!r}: a key holds no space, since RocketMQ separates keys by spaces; "
                f"give a list for several keys, such as {key.split()!r}"
            )
    return KEY_SEPARATOR.join(found)


def check_tags(tags: str) -> str:
    """``tags`` as stored in property TAGS.

    Raises ``TypeError`` for anything but a string, and ``ValueError`` for tags that no filter
    matches.
    """
    if not isinstance(tags, str):
        raise wrong_type("tags", tags, "a str: a message has one tag")
    if TAG_SEPARATOR in tags or tags != tags.strip(JAVA_BLANK):
        raise WrongValue(
            f"tags is {tags!r}, which no filter would match: a message has one tag, without '||', "
            "and RocketMQ drops spaces and control characters at its ends"
        )
    return tags


def decode_properties(data: bytes) -> dict[str, str]:
    """Names and values; the last value wins if a name repeats.

    Never raises: malformed properties are skipped, and invalid UTF-8 is replaced.
    """
    pairs = (
        piece.partition(_NAME_VALUE) for piece in data.decode(errors="replace").split(_PROPERTY)
    )
    return {name: value for name, separator, value in pairs if separator}


def feeds_light_queues(topic: str) -> bool:
    """Whether messages of ``topic`` may feed light queues (``MixAll.topicAllowsLMQ``)."""
    return not topic.startswith(_WITHOUT_LIGHT_QUEUES) and topic != SCHEDULE_TOPIC


def light_queues(dispatch: str) -> list[str]:
    """The light queues named in a value of ``INNER_MULTI_DISPATCH``, in order."""
    names = dispatch.split(MULTI_DISPATCH_SEPARATOR)
    return [name for name in names if name.startswith(LIGHT_QUEUE_PREFIX)]
