"""Selects the messages of a pull: by hashes of tags in the queue, or by an SQL92 expression."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import attrs

from lakelog.codec.decode import decode
from lakelog.errors import SettingsError
from lakelog_broker.codes import Refused, ResponseCode
from lakelog_queues.finding.results import GetStatus, RecordsResult
from lakelog_queues.groups.property_filter import PropertyFilter
from lakelog_queues.units.javahash import java_hash

SQL92: Final = "SQL92"
_READ_AHEAD: Final = 256
"""Least number of records that are read for an expression at once."""


@attrs.frozen
class Selection:
    """Which messages a subscription selects.

    :ivar tags_codes: Java hashes of tags; ``None`` selects all
    :ivar expression: over properties, evaluated for each record
    """

    tags_codes: frozenset[int] | None = None
    expression: PropertyFilter | None = None

    def read(self, get: Callable[[int], RecordsResult], most: int) -> RecordsResult:
        """At most ``most`` selected records of those that ``get`` reads, given their number."""
        if self.expression is None:
            return get(most)
        found = get(max(most, _READ_AHEAD))
        records: list[bytes] = []
        places: list[int] = []
        next_offset = found.next_offset
        for place, record in zip(found.queue_offsets, found.records, strict=True):
            if len(records) == most:
                next_offset = places[-1] + 1
                break
            if self.expression.matches(decode(record, verify=False).properties):
                records.append(record)
                places.append(place)
        status = found.status
        if status == GetStatus.FOUND and not records:
            status = GetStatus.NO_MATCHED_MESSAGE
        return attrs.evolve(
            found, status=status, records=records, queue_offsets=places, next_offset=next_offset
        )


@lru_cache(maxsize=1024)
def selection(text: str | None, kind: str | None) -> Selection:
    """Parse a subscription; raises :class:`Refused`.

    :param kind: ``TAG`` or ``SQL92``, as in a heartbeat; ``None`` is ``TAG``
    """
    if kind == SQL92:
        try:
            return Selection(expression=PropertyFilter(text or ""))
        except SettingsError as error:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
    if not text or text == "*":
        return Selection()
    return Selection(frozenset(java_hash(tag.strip()) for tag in text.split("||") if tag.strip()))
