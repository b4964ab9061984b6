"""SQL over the messages of a store with DuckDB: no Java, and no session to start.

DuckDB accepts any subclass of :class:`pyarrow.dataset.Dataset`, and requests a scanner with the
columns and the filter of each scan. Arrow's own scanners read ahead in threads, which continue
after a query that stops early. The scanner here has no threads.

A filter becomes limits of single columns, where possible. Arrow expressions can only be inspected
as text. A part that is not recognised limits nothing, as DuckDB filters the rows again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset

import lakelog
from lakelog.arrow import schema as message_schema
from lakelog.errors import LakelogError, SettingsError
from lakelog_lake import engine_provider, errors
from lakelog_lake.log.extent import RecordStarts, end_of
from lakelog_lake.log.records import store_name
from lakelog_lake.log.wanted import NumberSpan
from lakelog_lake.reading import options as reading
from lakelog_lake.reading.log_ranges import plan, rows_in

EXTRA: Final = "pip install 'lakelog-lake[duckdb]'"
_BATCH_ROWS: Final = 1 << 16


def is_installed() -> bool:
    """Whether DuckDB is installed."""
    return find_spec("duckdb") is not None


def answers(
    store: Path, statements: Iterable[str], limit: int, options: Mapping[str, str]
) -> Iterator[engine_provider.Answer]:
    """See :meth:`lakelog_lake.engine_provider.EngineProvider.answers`.

    Raises :class:`~lakelog.errors.SettingsError` without DuckDB or for wrong options,
    :class:`~lakelog_lake.errors.StatementRefused`, :class:`~lakelog_lake.errors.QueryFailed`, and
    the errors of reading the store.
    """
    if not is_installed():
        raise SettingsError(f"DuckDB is not installed: {EXTRA}", key="--engine")
    import duckdb

    read = reading.ReadOptions.of({**options, "path": str(store)})
    with duckdb.connect() as connection:
        # Names in statements must not refer to Python variables.
        connection.execute("SET python_enable_replacements = false")
        connection.execute("SET TimeZone = 'UTC'")  # as Spark's sessions here have it
        for statement in statements:
            messages = Messages(read)
            with _query_errors(messages):
                connection.register(engine_provider.VIEW, messages)
                answer = _answer(connection.sql(statement), limit)
            yield answer


def _answer(found: Any, limit: int) -> engine_provider.Answer:
    """Convert a relation, which is ``None`` after a statement such as CREATE."""
    if found is None:
        return engine_provider.Answer(pa.table({}))
    if not limit:
        return engine_provider.Answer(found.to_arrow_table())
    with found.to_arrow_reader(min(limit + 1, _BATCH_ROWS)) as reader:
        batches, count = [], 0
        for batch in reader:
            batches.append(batch)
            count += batch.num_rows
            if count > limit:
                break
        rows = pa.Table.from_batches(batches, reader.schema)
    return engine_provider.Answer(rows.slice(0, limit), count > limit)


@contextmanager
def _query_errors(messages: Messages) -> Iterator[None]:
    """Raise the error that ended a scan, or :class:`StatementRefused` or :class:`QueryFailed`."""
    import duckdb

    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        if messages.error is not None:
            raise messages.error from None
        first = " ".join(line.strip() for line in str(error).strip().splitlines() if line.strip())
        refused = duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException
        kind = errors.StatementRefused if isinstance(error, refused) else errors.QueryFailed
        raise kind(f"the query failed: {first}") from error


_TEXT: Final = r'"[^"\\]*"'
_MOMENT: Final = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}Z"
_COMPARED: Final = re.compile(rf"(\w+) (==|<=|>=|<|>) ({_TEXT}|{_MOMENT}|-?\d+)")
_LIST: Final = r'\[((?:\n\s+(?:"[\w%|.-]*"|-?\d+),?)+)\n\]'
_AMONG: Final = re.compile(
    rf"if_else\(is_valid\((\w+)\), is_in\(\1, \{{value_set=\w+:{_LIST}, "
    r"null_matching_behavior=\w+\}\), null\[bool\]\)"
)

_STRINGS: Final = "value_set=string:["
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[()\[\]{}]| and | or ')
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def limits_of(condition: pc.Expression) -> Mapping[str, reading.Limit]:
    """The values that columns can have where ``condition`` is true."""
    text = str(condition)
    if text.count(_STRINGS) > sum(1 for found in _AMONG.finditer(text) if _STRINGS in found[0]):
        return {}  # Arrow does not escape quotes in lists, so the rest is ambiguous
    return _limits(text)


def _limits(text: str) -> dict[str, reading.Limit]:
    found = _AMONG.fullmatch(text)
    if found is not None:
        values = [each.strip().rstrip(",") for each in found[2].split("\n") if each.strip()]
        # A tag may contain the characters that end a list's value; a topic cannot.
        return {} if found[1] == "tags" else _one_of(found[1], values)
    inner = text[1:-1]
    middle = list(_middles(inner))
    if not text.startswith("(") or not text.endswith(")") or len(middle) > 1:
        return {}
    if middle:
        first, behind = middle[0]
        sides = _limits(inner[:first]), _limits(inner[behind:])
        return (reading.both if inner[first:behind] == " and " else reading.either)(*sides)
    found = _COMPARED.fullmatch(inner)
    return {} if found is None else _compared(*found.groups())


def _compared(name: str, operator: str, constant: str) -> dict[str, reading.Limit]:
    if operator == "==":
        return _one_of(name, [constant])
    return {} if constant.startswith('"') else reading.compared(operator, name, _number(constant))


def _one_of(name: str, constants: list[str]) -> dict[str, reading.Limit]:
    is_text = [each.startswith('"') for each in constants]
    if any(is_text) != (name in reading.SETS and name != "queue_id"):
        return {}
    return reading.among(name, [each[1:-1] if is_text[0] else _number(each) for each in constants])


def _middles(text: str) -> Iterator[tuple[int, int]]:
    """The span of the ``and`` or ``or`` between two sides; Arrow writes exactly one."""
    depth = 0
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in "([{":
            depth += 1
        elif len(token) == 1:
            depth -= 1
        elif not token.startswith('"') and not depth:
            yield found.span()


def _number(constant: str) -> int:
    """A number as it is; a timestamp in µs since 1970."""
    if constant.endswith("Z"):
        moment = datetime.fromisoformat(constant)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    return int(constant)


class Messages(dataset.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """The rows selected by ``options``, up to the end of the log at creation, for any scan.

    :ivar error: the error that ended a scan; DuckDB itself passes on only its text
    """

    error: LakelogError | None = None

    def __init__(self, options: reading.ReadOptions) -> None:  # Dataset's own __init__ raises
        with lakelog.open(options.path, mode="read") as store, RecordStarts.of(store) as marks:
            self._name = options.store_id or store_name(options.path)
            end = end_of(marks, options.until)
        if options.start.store not in (None, self._name):
            raise errors.OtherStore(options.path, str(options.start.store), self._name)
        physical = options.wanted.physical.both(NumberSpan(end=end))
        wanted = attrs.evolve(options.wanted, physical=physical)
        self._options = attrs.evolve(options, wanted=wanted)

    @property
    def schema(self) -> pa.Schema:
        """All columns, in their order."""
        return _schema(reading.names_of(self._options))

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
            wanted = reading.limited(options.wanted, reading.to_option(limits_of(condition)))
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
    own = [name for name in names if name in ("store", "error")]
    known = message_schema([name for name in names if name not in own])
    return pa.schema([known.field(n) if n not in own else pa.field(n, pa.string()) for n in names])
