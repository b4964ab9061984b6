"""The messages of a topic that a client wants: by tags, or by an SQL92 expression."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Final

import attrs

from lakelog.codec.decode import decode
from lakelog.errors import SettingsError
from lakelog_broker.codes import Refused, ResponseCode
from lakelog_queues.finding.results import GetStatus, RecordsResult
from lakelog_queues.groups.property_filter import PropertyFilter
from lakelog_queues.units.javahash import java_hash


@attrs.frozen
class Selection:
    """A parsed subscription of a client.

    :ivar tags_codes: Java hashes of the wanted tags; ``None`` is all. The client compares the tags
    :ivar filter: the expression over properties; ``None`` is none
    """

    tags_codes: Collection[int] | None = None
    filter: PropertyFilter | None = None

    @staticmethod
    @lru_cache(1024)
    def of(expression_type: str, expression: str) -> Selection:
        """Parse a subscription.

        :param expression_type: ``TAG`` or ``SQL92``

        Raises :class:`Refused`.
        """
        if expression_type == "SQL92":
            try:
                return Selection(filter=PropertyFilter(expression))
            except SettingsError as error:
                raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        if expression_type != "TAG":
            raise Refused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"a subscription has the type TAG or SQL92, not {expression_type}",
            )
        tags = [tag.strip() for tag in expression.split("||") if tag.strip()]
        if not tags or expression.strip() == "*":
            return EVERYTHING
        return Selection(tags_codes=frozenset(map(java_hash, tags)))

    def of_records(self, found: RecordsResult) -> RecordsResult:
        """The records that the expression selects; the next offset stays."""
        if self.filter is None or not found.records:
            return found
        kept = [
            (record, offset)
            for record, offset in zip(found.records, found.queue_offsets, strict=True)
            if self.filter.matches(decode(record, verify=False).properties)
        ]
        return attrs.evolve(
            found,
            status=GetStatus.FOUND if kept else GetStatus.NO_MATCHED_MESSAGE,
            records=[record for record, _ in kept],
            queue_offsets=[offset for _, offset in kept],
        )


EVERYTHING: Final = Selection()
