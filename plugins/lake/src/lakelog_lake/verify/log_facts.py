"""The records of a log that should be rows of a table, as compared values; and its damage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np

from lakelog.log.reading.pieces import Damage
from lakelog_lake.log.range_reader import DamagePolicy, LogSpan, merged, steps
from lakelog_lake.log.selection import Chosen, chosen_rows, coded_topics
from lakelog_lake.log.unpacking import unpacked
from lakelog_lake.verify.row_facts import Queues, facts_of

if TYPE_CHECKING:
    import pyarrow as pa

    import lakelog
    from lakelog.codec import RecordBatch
    from lakelog_lake.verify.row_facts import Facts

_STEP_BYTES = 8 << 20


@attrs.define
class _Noted(DamagePolicy):
    """Collects the places of damage."""

    places: list[LogSpan] = attrs.field(factory=list)

    def met(self, damage: Damage) -> None:
        """Note bytes that are no record."""
        self.places.append(LogSpan(damage.offset, damage.end_offset))


@attrs.define
class LogFacts:
    """Reads the compared values of a log's records.

    :ivar columns: the columns to compare, including the key
    """

    chosen: Chosen
    columns: Sequence[str]
    queues: Queues
    damages: _Noted = attrs.field(factory=lambda: _Noted(skip=True))

    @property
    def damaged(self) -> tuple[LogSpan, ...]:
        """The damaged ranges, in log order; adjacent ones are one."""
        return merged(self.damages.places)

    def between(self, store: lakelog.Store, span: LogSpan) -> Iterator[Facts]:
        """Yield the compared values in log order, a few MiB of the log at a time."""
        if span.end <= span.start:
            return
        for batch in self.damages.records(store.scan_pieces(span.start, span.end), span):
            for part in steps(batch, np.arange(len(batch)), _STEP_BYTES):
                rows = self._rows(part)
                if rows is not None:
                    yield facts_of(rows, self.queues)

    def _rows(self, batch: RecordBatch) -> pa.RecordBatch | None:

        places = chosen_rows(batch, *coded_topics(batch), self.chosen)
        if not len(places):
            return None
        part = batch.take(places)
        return unpacked(part, self.columns)[0]
