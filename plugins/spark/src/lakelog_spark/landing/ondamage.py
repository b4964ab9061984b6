"""What a task does with bytes that are no records: it passes them over, or ends there."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import attrs

from lakelog.errors import CorruptRecord
from lakelog.pieces import Damage, Piece
from lakelog_spark import wanted, whole
from lakelog_spark.errors import CorruptBody, CorruptLog
from lakelog_spark.landing.gathering import Span

if TYPE_CHECKING:
    from lakelog.codec import RecordBatch

_log = logging.getLogger("lakelog_spark")


@attrs.define
class Damages:
    """Either passes damage over, with a line in the log for each, or ends the task.

    :ivar count: how many pieces of the log were passed over
    """

    skip: bool
    count: int = 0

    def records(self, pieces: Iterable[Piece], span: Span) -> Iterator[RecordBatch]:
        """The records among ``pieces``, which must cover ``span``."""
        return whole.record_batches(pieces, wanted.Span(span.start, span.end), self.met)

    def met(self, damage: Damage) -> None:
        """Bytes that are no records; raises :class:`~lakelog_spark.errors.CorruptLog`."""
        if not self.skip:
            raise CorruptLog(damage)
        self.count += 1
        _log.warning("%s", damage)

    def bodies(self, errors: Mapping[int, CorruptRecord]) -> None:
        """Whole records whose bodies cannot be unpacked, by row; raises :class:`CorruptBody`."""
        for error in errors.values():
            if not self.skip:
                raise CorruptBody(error)
            _log.warning("%s; its row has the body as it is stored", error)
