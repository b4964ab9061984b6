"""The messages of a store as an Arrow data set, which can be scanned repeatedly.

DuckDB accepts any subclass of :class:`pyarrow.dataset.Dataset`, and requests a scanner with the
columns and the filter of each scan. Arrow's own scanners read ahead in threads, which continue
after a query that stops early. This scanner has no threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
from pyarrow import dataset

import lakelog
from lakelog.errors import LakelogError
from lakelog_lake.errors import OtherStore
from lakelog_lake.log.columns import store_name
from lakelog_lake.log.ends import end_of
from lakelog_lake.log.record_starts import RecordStarts
from lakelog_lake.log.wanted import NumberSpan
from lakelog_lake.queries.expressions import limits_of
from lakelog_lake.reading.limits import limited, to_option
from lakelog_lake.reading.options import ReadOptions, names_of
from lakelog_lake.reading.plan import plan
from lakelog_lake.reading.rows import rows_in
from lakelog_queues.arrow import schema as message_schema

if TYPE_CHECKING:
    import pyarrow.compute as pc


class Messages(dataset.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """The rows selected by ``options``, up to the end of the log at creation, for any scan.

    :ivar error: the error that ended a scan; DuckDB itself passes on only its text
    """

    error: LakelogError | None = None

    def __init__(self, options: ReadOptions) -> None:  # Dataset's own __init__ raises
        with lakelog.open(options.path, mode="read") as store, RecordStarts.of(store) as marks:
            self._name = options.store_id or store_name(options.path)
            end = end_of(marks, options.until)
        if options.start.store not in (None, self._name):
            raise OtherStore(options.path, str(options.start.store), self._name)
        physical = options.wanted.physical.both(NumberSpan(end=end))
        wanted = attrs.evolve(options.wanted, physical=physical)
        self._options = attrs.evolve(options, wanted=wanted)

    @property
    def schema(self) -> pa.Schema:
        """All columns, in their order."""
        return _schema(names_of(self._options))

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002  # Arrow's name
        **_: Any,
    ) -> Scan:
        """One scan; the other arguments of Arrow's scanners only tune speed."""
        return Scan(self, self.schema.names if columns is None else list(columns), filter)

    def batches(
        self, columns: Sequence[str], condition: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows for which ``condition`` is true."""
        try:
            yield from self._batches(columns, condition)
        except LakelogError as error:
            self.error = error
            raise

    def _batches(
        self, columns: Sequence[str], condition: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        options, condition_text = self._options, "" if condition is None else str(condition)
        if condition is not None:
            wanted = limited(options.wanted, to_option(limits_of(condition)))
            options = attrs.evolve(options, wanted=wanted)
        needed = [name for name in self.schema.names if name in columns or name in condition_text]
        types = _schema(needed)
        with lakelog.open(options.path, mode="read") as store:
            for part in plan(store, options):
                for batch in rows_in(store, options, self._name, part, needed):
                    found = batch.cast(types)
                    if condition is not None:
                        found = found.filter(condition)
                    yield found.select(list(columns))


@attrs.frozen
class Scan:
    """The part of a scanner's interface that DuckDB uses."""

    messages: Messages
    columns: Sequence[str]
    condition: pc.Expression | None

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of the rows."""
        return _schema(self.columns)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows, read on demand."""
        rows = self.messages.batches(self.columns, self.condition)
        return pa.RecordBatchReader.from_batches(self.projected_schema, rows)


def _schema(names: Sequence[str]) -> pa.Schema:
    own = [name for name in names if name in _OWN]
    known = message_schema([name for name in names if name not in own])
    return pa.schema([known.field(n) if n not in own else pa.field(n, pa.string()) for n in names])


_OWN = ("store", "error")
