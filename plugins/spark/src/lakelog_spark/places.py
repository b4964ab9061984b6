"""Where a read starts and ends, as options say it.

That is a word, a time, a place in the log, or places in queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from lakelog_spark.values import mapping, nearest, refused, time_ms

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_PLACE_KEYS: Final = ("offset", "store", "version")


@attrs.frozen
class Place:
    """One end of a read; exactly one of these is given.

    :ivar word: ``earliest`` or ``latest``
    :ivar time_ms: a store time
    :ivar offset: a place in the log, in bytes
    :ivar queues: queue offsets by topic and queue id; other queues are not bound
    :ivar store: the store that ``offset`` is of, where that was said
    """

    word: str | None = None
    time_ms: int | None = None
    offset: int | None = None
    queues: Mapping[tuple[str, int], int] | None = None
    store: str | None = None


def place(key: str, text: str) -> Place:
    """What ``text`` means: ``earliest``, ``latest``, a time, or JSON.

    JSON is ``{"offset": BYTES}``, as a streaming query's offsets are written, or queue offsets,
    ``{"TOPIC": {"0": 12, "1": 7}}``. Raises :class:`~lakelog.errors.SettingsError`.
    """
    short = text.strip()
    if short.lower() in (EARLIEST, LATEST):
        return Place(word=short.lower())
    if short.startswith("{"):
        return _of_json(key, mapping(key, short))
    if short.isalpha():
        raise refused(key, f"{text!r} is no place; {nearest(short.lower(), (EARLIEST, LATEST))}")
    return Place(time_ms=time_ms(key, short))


def _of_json(key: str, found: Mapping[str, Any]) -> Place:
    if _is_number(found.get("offset")):
        strange = sorted(set(found) - set(_PLACE_KEYS))
        if strange:
            raise refused(key, f"{strange[0]!r} is unknown; {nearest(strange[0], _PLACE_KEYS)}")
        return Place(offset=found["offset"], store=found.get("store"))
    queues: dict[tuple[str, int], int] = {}
    for topic, offsets in found.items():
        if not isinstance(offsets, Mapping):
            raise refused(key, _shape(topic, offsets))
        for queue_id, offset in offsets.items():
            if not str(queue_id).isdigit() or not _is_number(offset):
                raise refused(key, _shape(topic, offsets))
            queues[topic, int(queue_id)] = offset
    if not queues:
        raise refused(key, 'it names no queue; write {"TOPIC": {"0": 12}} or {"offset": BYTES}')
    return Place(queues=queues)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _shape(topic: str, found: object) -> str:
    return (
        f"{topic!r} has {found!r}; write queue offsets by queue id, "
        '{"TOPIC": {"0": 12}}, or a place in the log, {"offset": BYTES}'
    )
