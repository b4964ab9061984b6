"""Messages by key, through the key index.

RocketMQ: ``DefaultMessageStore.queryMessage``, which returns what the index points to; here topic,
key and store time of each message are checked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import attrs

from lakelog.errors import CorruptIndex, CorruptRecord, MissingIndex, OffsetOutOfRange
from lakelog.format.properties import KEY_SEPARATOR, KEYS, UNIQUE_KEY
from lakelog.interfaces import KeyIndex
from lakelog.message import StoredMessage
from lakelog.runtime.arguments import FOREVER_MS, WrongValue, text, time_ms, topic_name, whole

DEFAULT_MESSAGES: Final = 64
_log = logging.getLogger("lakelog")


def _nowhere(_topic: str) -> int:
    """No topic was removed."""
    return 0


class MessageLog(Protocol):
    """The part of :class:`~lakelog.log.reading.log_reader.LogReader` that is needed here."""

    @property
    def oldest_offset(self) -> int:
        """Where the oldest record begins that can be read."""

    def look_up(self, where: int | str) -> StoredMessage:
        """The message at an offset."""


@attrs.frozen
class KeyQuery:
    """Finds messages by key.

    :ivar index: ``None`` where the store has none
    :ivar buried: the offset below which records of a topic do not count: it was removed
    """

    index: KeyIndex | None
    log: MessageLog
    buried: Callable[[str], int] = _nowhere

    def query(
        self,
        topic: str,
        key: str,
        since_ms: int | None = None,
        until_ms: int | None = None,
        max_messages: int = DEFAULT_MESSAGES,
    ) -> list[StoredMessage]:
        """Messages of ``topic`` whose unique key, or one of whose keys, is ``key``; newest first.

        Of a topic that was removed, only what was put since then. A message that is damaged is
        passed over and logged, and so is the rest of an index that is damaged; one that retention
        has deleted is passed over.

        :param since_ms: store time of the oldest, in ms since 1970
        :param until_ms: store time of the youngest, itself included

        Raises :class:`~lakelog.errors.MissingIndex`; ``TypeError`` for arguments of a wrong type,
        and ``ValueError`` for a key that no message can have, times that can only be seconds, and
        fewer than one message.
        """
        (begin, end), most = _times(since_ms, until_ms), whole("max_messages", max_messages, 1)
        found: list[StoredMessage] = []
        buried = self.buried(topic)
        for offset in self._offsets(topic, key, begin, end):
            if len(found) >= most:
                break
            message = self._message(offset) if offset >= buried else None
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
        """What the index itself says: physical offsets, newest first, as RocketMQ's returns them.

        Records of other keys and topics may be among them, whose hash is the same.

        Raises :class:`~lakelog.errors.MissingIndex`.
        """
        found, most = list[int](), whole("max_count", max_count, 1)
        for offset in self._offsets(topic, key, *_times(since_ms, until_ms)):
            if len(found) >= most:
                break
            found.append(offset)
        return found

    def _offsets(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        topic_name(topic)
        if KEY_SEPARATOR in text("key", key, "order-42"):
            raise WrongValue(
                f"key is {key!r}, which no message has: RocketMQ separates keys by spaces; ask for "
                "one of them"
            )
        if self.index is None:
            raise MissingIndex(
                "messages cannot be found by key without an index: install lakelog-hash-index, "
                "and name it in the setting 'dispatchers'"
            )
        return self._from(self.index, topic, key, begin_ms, end_ms)

    @staticmethod
    def _from(index: KeyIndex, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        seen: set[int] = set()
        try:
            for offset in index.offsets(topic, key, begin_ms, end_ms):
                if offset not in seen:
                    seen.add(offset)
                    yield offset
        except CorruptIndex as error:
            _log.warning("%s; what was found before is all", error)

    def _message(self, offset: int) -> StoredMessage | None:
        try:
            return self.log.look_up(offset)
        except (CorruptRecord, OffsetOutOfRange) as error:
            if offset >= self.log.oldest_offset:  # index files go after the log that they are of
                _log.warning("the key index points to no whole record: %s", error)
            return None


def _times(since_ms: int | None, until_ms: int | None) -> tuple[int, int]:
    begin = 0 if since_ms is None else time_ms("since_ms", since_ms)
    end = FOREVER_MS if until_ms is None else time_ms("until_ms", until_ms)
    if begin > end:
        raise WrongValue(f"since_ms is {begin}, behind until_ms, {end}; give the older one first")
    return begin, end


def _has(message: StoredMessage, topic: str, key: str) -> bool:
    if message.topic != topic:
        return False
    properties = message.properties  # taken apart at each look
    keys = properties.get(KEYS, "").split(KEY_SEPARATOR)
    return properties.get(UNIQUE_KEY) == key or (key != "" and key in keys)
