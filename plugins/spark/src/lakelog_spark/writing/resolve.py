"""Finds the messages of an interrupted batch in the log.

A batch is appended in order, from an offset on that was stored before. An interruption leaves a
part of the batch: its first messages or, after a power cut, whole records with damage between them.
There may be messages of other producers between and behind them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Final, TypeAlias

import lakelog
from lakelog.format.layout import RECORD_CRC_NAME
from lakelog.format.properties import INNER_MULTI_QUEUE_OFFSET, decode_properties
from lakelog.format.sysflag import BORN_HOST_V6, STORE_HOST_V6
from lakelog.message import Message, StoredMessage
from lakelog_spark.writing.errors import LogLost

_HOSTS: Final = BORN_HOST_V6 | STORE_HOST_V6
_BY_STORE: Final = (RECORD_CRC_NAME.decode(), INNER_MULTI_QUEUE_OFFSET)
"""Properties that the store writes."""
_Waiting: TypeAlias = "defaultdict[tuple[object, ...], deque[int]]"


def missing(store: lakelog.Store, job: str, offset: int, messages: Sequence[Message]) -> list[int]:
    """Find the messages of a batch that are not in the log.

    :param offset: physical offset from which on the messages were appended, if at all
    :returns: their indices in ``messages``

    Raises :class:`.LogLost` if the log no longer contains ``offset``.
    """
    if not store.min_offset <= offset <= store.max_offset:
        raise LogLost(job, offset, store.min_offset, store.max_offset)
    waiting: _Waiting = defaultdict(deque)
    for number, message in enumerate(messages):
        waiting[_traits(message)].append(number)
    left = set(range(len(messages)))
    for record in store.scan(offset):
        left.discard(_found(waiting.get(_traits(record)), messages, record))
        if not left:
            break
    return sorted(left)


def _found(numbers: deque[int] | None, messages: Sequence[Message], record: StoredMessage) -> int:
    """The index of the message stored as ``record``; -1 for a record of another producer."""
    for number in numbers or ():
        if _same(messages[number], record):
            numbers.remove(number)  # type: ignore[union-attr]  # it is not empty
            return number
    return -1


def _traits(message: Message | StoredMessage) -> tuple[object, ...]:
    """Cheap attributes that few other messages share."""
    return message.topic, message.queue_id, message.born_timestamp_ms, bytes(message.body)


def _same(message: Message, record: StoredMessage) -> bool:
    return (
        message.flag == record.flag
        and message.sys_flag & ~_HOSTS == record.sys_flag & ~_HOSTS
        and message.reconsume_times == record.reconsume_times
        and message.born_host in (None, record.born_host)
        and _properties(message.properties) == _properties(record.properties_bytes)
    )


def _properties(given: object) -> dict[str, str]:
    found = decode_properties(given) if isinstance(given, bytes) else {}
    return {name: value for name, value in found.items() if name not in _BY_STORE}
