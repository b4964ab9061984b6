"""Finds messages by key, through the key index.

Source: RocketMQ 5.3.3, ``DefaultMessageStore.queryMessage``. That method returns all messages the
index points to; here topic, key and store time of each message are checked as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import attrs

from lakelog.arguments import WrongValue, whole
from lakelog.errors import CorruptIndex, CorruptRecord, MissingIndex, OffsetOutOfRange
from lakelog.format.properties import KEY_SEPARATOR, KEYS, UNIQUE_KEY
from lakelog.hooks import KeyIndex
from lakelog.log.log_reader import LogReader
from lakelog.message import StoredMessage
from lakelog_queues.arguments import FOREVER_MS, text, time_ms, topic_name

DEFAULT_MESSAGES: Final = 64
_log = logging.getLogger("lakelog")


@attrs.frozen
class KeyQuery:
    """Finds messages by key.

    :ivar index: ``None`` if the store has none
    :ivar tombstone_of: returns the physical offset below which records of a topic do not count,
        because the topic was removed
    :ivar refresh: brings the index up to date; ``None`` if another thread or process does
    """

    index: KeyIndex | None
    log: LogReader
    tombstone_of: Callable[[str], int]
    refresh: Callable[[], object] | None = None

    def query(
        self,
        topic: str,
        key: str,
        since_ms: int | None = None,
        until_ms: int | None = None,
        max_messages: int = DEFAULT_MESSAGES,
    ) -> list[StoredMessage]:
        """Messages of ``topic`` whose unique key, or one of whose keys, is ``key``; newest first.

        For a topic that was removed, only messages put since then are found. A damaged message is
        skipped and logged. At damage in the index the search ends, with a warning. Messages deleted
        by retention are skipped.

        :param since_ms: earliest store time, in ms since 1970
        :param until_ms: latest store time, inclusive

        Raises :class:`~lakelog.errors.MissingIndex`. Raises ``TypeError`` for arguments of a wrong
        type. Raises ``ValueError`` for a key with a space, times that are evidently in seconds, or
        ``max_messages`` below 1.
        """
        (begin, end), most = _times(since_ms, until_ms), whole("max_messages", max_messages, 1)
        found: list[StoredMessage] = []
        tombstone = self.tombstone_of(topic)
        for offset in self._offsets(topic, key, begin, end):
            if len(found) >= most:
                break
            message = self._message(offset) if offset >= tombstone else None
            if message and begin <= message.store_timestamp_ms <= end and _has(message, topic, key):
                found.append(message)
        return found

    def offsets(
        self,
        topic: str,
        key: str,
        since_ms: int | None = None,
        until_ms: int | None = None,
        max_count: int = DEFAULT_MESSAGES,
    ) -> list[int]:
        """The physical offsets in the index, newest first, in the order of RocketMQ's index.

        They may include records of other keys and topics with the same hash.

        Raises :class:`~lakelog.errors.MissingIndex`.
        """
        most = whole("max_count", max_count, 1)
        return list(islice(self._offsets(topic, key, *_times(since_ms, until_ms)), most))

    def _offsets(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        topic_name(topic)
        if KEY_SEPARATOR in text("key", key, "order-42"):
            raise WrongValue(
                f"key {key!r} contains a space, which separates keys in RocketMQ; query one key at "
                "a time"
            )
        if self.index is None:
            raise MissingIndex(
                "messages cannot be found by key without an index; install lakelog-hash-index, "
                "and add 'hash-index' to the setting 'dispatchers'"
            )
        if self.refresh is not None:
            self.refresh()
        seen: set[int] = set()
        try:
            for offset in self.index.offsets(topic, key, begin_ms, end_ms):
                if offset not in seen:
                    seen.add(offset)
                    yield offset
        except CorruptIndex as error:
            _log.warning("%s; the query returns only messages found before the damage", error)

    def _message(self, offset: int) -> StoredMessage | None:
        try:
            return self.log.look_up(offset)
        except (CorruptRecord, OffsetOutOfRange) as error:
            if offset >= self.log.oldest_offset:  # retention deletes the log before its index files
                _log.warning("the key index points to no whole record; it was skipped: %s", error)
            return None


def _times(since_ms: int | None, until_ms: int | None) -> tuple[int, int]:
    begin = 0 if since_ms is None else time_ms("since_ms", since_ms)
    end = FOREVER_MS if until_ms is None else time_ms("until_ms", until_ms)
    if begin > end:
        raise WrongValue(f"since_ms {begin} is later than until_ms {end}; exchange them")
    return begin, end


def _has(message: StoredMessage, topic: str, key: str) -> bool:
    if message.topic != topic:
        return False
    properties = message.properties  # kept: each access parses the string
    keys = properties.get(KEYS, "").split(KEY_SEPARATOR)
    return properties.get(UNIQUE_KEY) == key or (key != "" and key in keys)
