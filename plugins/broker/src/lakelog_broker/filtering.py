"""Selects the messages of a subscription: by the tag hashes in the ConsumeQueue, or by SQL92."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import attrs

from lakelog import Store, StoredMessage, errors
from lakelog.format.record import decode
from lakelog_broker.codes import Refused, ResponseCode
from lakelog_queues.finding.results import GetStatus, RecordsResult
from lakelog_queues.units.tags import java_hash

if TYPE_CHECKING:
    from lakelog_queues.groups.property_filter import PropertyFilter

MAX_BYTES: Final = 4 << 20
"""Most bytes of records per read."""
_READ_AHEAD: Final = 256
"""Least number of records per read for an SQL92 expression."""


@attrs.frozen
class MessageFilter:
    """The messages that a subscription selects.

    :ivar tags: selected tags; ``None`` selects all. ConsumeQueues have only their Java hashes
    :ivar properties: an SQL92 expression, evaluated for each record
    """

    tags: frozenset[str] | None = None
    properties: PropertyFilter | None = None
    _tags_codes: frozenset[int] | None = None

    @staticmethod
    @lru_cache(maxsize=1024)
    def of(expression: str | None, expression_type: str | None) -> MessageFilter:
        """Parse a client's expression, of type ``TAG`` or ``SQL92``; raises :class:`Refused`."""
        if expression_type == "SQL92":
            from lakelog_queues.groups.property_filter import PropertyFilter

            try:
                return MessageFilter(properties=PropertyFilter(expression or ""))
            except errors.SettingsError as error:
                raise Refused(str(error), ResponseCode.SUBSCRIPTION_PARSE_FAILED) from None
        if not expression or expression == "*":
            return EVERYTHING
        tags = frozenset(tag.strip() for tag in expression.split("||") if tag.strip())
        return MessageFilter(tags, tags_codes=frozenset(map(java_hash, tags)))

    def records(
        self, store: Store, topic: str, queue_id: int, offset: int, max_records: int
    ) -> RecordsResult:
        """Read the selected records of a queue.

        The result may include records with another tag of the same hash; clients filter again.
        Raises as ``Store.get_records``.
        """
        count = max_records if self.properties is None else max(max_records, _READ_AHEAD)
        found = store.get_records(
            topic,
            queue_id,
            offset,
            count,
            max_bytes=MAX_BYTES,
            tags_codes=self._tags_codes,
            verify=False,  # the client computes the checksums
        )
        return found if self.properties is None else self._matching(found, max_records)

    def _matching(self, found: RecordsResult, max_records: int) -> RecordsResult:
        assert self.properties is not None
        records: list[bytes] = []
        places: list[int] = []
        next_offset = found.next_offset
        for place, record in zip(found.queue_offsets, found.records, strict=True):
            if len(records) == max_records:
                next_offset = places[-1] + 1
                break
            if self.properties.matches(decode(record, verify=False).properties):
                records.append(record)
                places.append(place)
        status = found.status
        if status == GetStatus.FOUND and not records:
            status = GetStatus.NO_MATCHED_MESSAGE
        return attrs.evolve(
            found, status=status, records=records, queue_offsets=places, next_offset=next_offset
        )

    def messages(
        self, store: Store, topic: str, queue_id: int, offset: int, max_messages: int
    ) -> tuple[list[tuple[StoredMessage, bytes]], int]:
        """Read the selected messages of a queue, each with its record, and the next queue offset.

        Tags are compared exactly. Raises as ``Store.get_records``.
        """
        found = self.records(store, topic, queue_id, offset, max_messages)
        pairs = zip(found.queue_offsets, found.records, strict=True)
        messages = [(placed(record, topic, queue_id, place), record) for place, record in pairs]
        if self.tags is not None:
            messages = [each for each in messages if each[0].tags in self.tags]
        return messages, found.next_offset


def placed(record: bytes, topic: str, queue_id: int, queue_offset: int) -> StoredMessage:
    """The message of a record of a queue; one of a light queue with its place there."""
    message = decode(record)
    if message.topic == topic:
        return message
    return attrs.evolve(message, topic=topic, queue_id=queue_id, queue_offset=queue_offset)


EVERYTHING: Final = MessageFilter()
