"""The parts of one entry in the owner's own memory, out of its producer's reach."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from lakelog.errors import RingNonsense


@attrs.frozen(slots=True, eq=False)
class Parts:
    """Records and what was said of them.

    :ivar records: writable; they become what is written to the log
    :ivar sizes: what the producer says of the lengths; together they are that of ``records``
    :ivar topic_index: of each record, which topic; empty where there is one topic
    """

    records: memoryview
    sizes: memoryview[int]
    topics: Sequence[str]
    topic_index: memoryview[int] | None
    wait: bool
    sealed: bool

    def topic_of(self, number: int) -> str:
        """The topic of one record."""
        if self.topic_index is None:
            return self.topics[0]
        at = self.topic_index[number]
        if not 0 <= at < len(self.topics):
            raise RingNonsense(f"topic {at} is not in the table of {len(self.topics)}")
        return self.topics[at]

    def behind(self, count: int) -> Parts:
        """All but the first ``count`` records."""
        index = None if self.topic_index is None else self.topic_index[count:]
        records = self.records[sum(self.sizes[:count]) :]
        return attrs.evolve(self, records=records, sizes=self.sizes[count:], topic_index=index)
