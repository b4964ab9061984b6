"""After a stop: which messages of a batch are in the log, and which are to be appended.

A batch is appended at once, in its order and with one store time, by the only owner. A stop leaves
a part of it: its front, or, after a power cut, whole records with damage between them. Behind
these may be what others appended later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final

import lakelog
from lakelog.layout import RECORD_CRC_NAME
from lakelog.message import Message, StoredMessage
from lakelog.properties import INNER_MULTI_QUEUE_OFFSET, decode_properties
from lakelog.sysflag import BORN_HOST_V6, STORE_HOST_V6
from lakelog_spark.writing.errors import LogLost

_HOSTS: Final = BORN_HOST_V6 | STORE_HOST_V6
_BY_STORE: Final = (RECORD_CRC_NAME.decode(), INNER_MULTI_QUEUE_OFFSET)
"""Properties that the store writes."""


def missing(store: lakelog.Store, job: str, offset: int, messages: Sequence[Message]) -> list[int]:
    """Which of ``messages``, appended from ``offset`` on if at all, are not in the log.

    Raises :class:`.LogLost` where the log cannot tell.
    """
    if not store.min_offset <= offset <= store.max_offset:
        raise LogLost(job, offset, store.min_offset, store.max_offset)
    left = list(range(len(messages)))
    at = 0
    for record in _of_one_append(store.scan(offset)):
        found = next((n for n in range(at, len(left)) if _same(messages[left[n]], record)), None)
        if found is None:
            break
        del left[found]
        at = found
    return left


def _of_one_append(records: Iterator[StoredMessage]) -> Iterator[StoredMessage]:
    first = next(records, None)
    if first is not None:
        yield first
        when = first.store_timestamp_ms
        yield from takewhile(lambda each: each.store_timestamp_ms == when, records)


def _same(message: Message, record: StoredMessage) -> bool:
    return (
        message.topic == record.topic
        and message.queue_id == record.queue_id
        and message.born_timestamp_ms == record.born_timestamp_ms
        and message.body == record.body
        and message.flag == record.flag
        and message.sys_flag & ~_HOSTS == record.sys_flag & ~_HOSTS
        and message.reconsume_times == record.reconsume_times
        and message.born_host in (None, record.born_host)
        and _properties(message.properties) == _properties(record.properties_bytes)
    )


def _properties(given: object) -> dict[str, str]:
    found = decode_properties(given) if isinstance(given, bytes) else {}
    return {name: value for name, value in found.items() if name not in _BY_STORE}
